package quant

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

var update = flag.Bool("update", false, "rewrite the golden files of this package")

// bitsKinds are the kinds of matrices that are hashed: ordinary values, ties, and
// the edges with NaN and Inf.
var bitsKinds = []int{0, 2, 5}

// TestBits compares the codes, scales, global scales and amaxes of every behavior
// with hashes in testdata/bits.txt: by rowwise and columnwise copies, alone and
// together, of float32 and BF16 sources, over shapes with and without partial
// blocks. What rewrites the engine must leave this file as it is; -update rewrites it. A short
// run compares every third row, under an emulator every 17th.
func TestBits(t *testing.T) {
	var got strings.Builder
	stride := slow.Stride(3, 17)
	for i, q := range bitsQuantizers() {
		if i%stride > 0 {
			got.WriteString("\n")
			continue
		}
		var all bytes.Buffer
		for _, kind := range bitsKinds {
			for _, shape := range [][2]int{{1, 1}, {5, 33}, {32, 64}, {100, 272}, {256, 144}} {
				hashCopies(t, &all, q, randomMatrix(kind, shape[0], shape[1]))
			}
		}
		fmt.Fprintf(&got, "%s  %s\n", shortHash(all.Bytes()), q.bitsName())
	}
	path := filepath.Join("testdata", "bits.txt")
	if *update && !testing.Short() {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gotRows, wantRows := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	if len(gotRows) != len(wantRows) {
		t.Errorf("%d rows, want %d", len(gotRows)-1, len(wantRows)-1)
	}
	for i := range min(len(gotRows), len(wantRows)) {
		if gotRows[i] != wantRows[i] && i%stride == 0 {
			t.Errorf("got  %s\nwant %s", gotRows[i], wantRows[i])
		}
	}
}

// bitsQuantizers returns the behaviors that are hashed.
func bitsQuantizers() []Quantizer {
	all := behaviors()
	for _, f := range Formats() {
		for _, q := range []Quantizer{
			{Format: f}, {Format: f, Hadamard: true}, {Format: f, NegativeZero: DropNegativeZero},
			{Format: f, Search: LeastSquares}, {Format: f, Search: FourOverSixMSE, TopScale: FourOverSixTop},
		} {
			if q.Validate() == nil {
				all = append(all, q)
			}
		}
	}
	return all
}

func (q Quantizer) bitsName() string {
	name := strings.ReplaceAll(strings.TrimPrefix(q.testName(), "format="), " ", "-")
	return fmt.Sprintf("%s/zero=%d/search=%s/hadamard=%t", name, q.NegativeZero, q.Search, q.Hadamard)
}

// hashCopies appends what quantizing x gives to all, or that it fails.
func hashCopies(t *testing.T, all *bytes.Buffer, q Quantizer, x tensor.Dense) {
	t.Helper()
	with := With{Random: &Stream{Seed: 11, Step: 3, Tensor: 7}, FirstRow: 2}
	raw := tensor.OfBF16(x.Rows, x.Cols, make([]byte, 2*len(x.Data)))
	for i, v := range x.Data {
		binary.LittleEndian.PutUint16(raw.Data[2*i:], uint16(math.Float32bits(v)>>16))
	}
	add := func(q *Tensor, err error) {
		if err != nil {
			all.WriteString("fails")
			return
		}
		all.Write(q.Codes)
		all.Write(q.ScaleBytes())
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(q.Global))
		binary.LittleEndian.PutUint32(b[4:], math.Float32bits(q.Amax))
		all.Write(b[:])
	}
	rows, err := q.Rowwise(x, with)
	add(rows, err)
	columns, err2 := q.Columnwise(x, with)
	add(columns, err2)
	add(q.RowwiseBF16(raw, with))
	add(q.ColumnwiseBF16(raw, with))
	both, both2, err3 := RowwiseColumnwise(x, Copy{q, with}, Copy{q, with})
	switch {
	case (err3 == nil) != (err == nil && err2 == nil):
		t.Errorf("%s: RowwiseColumnwise returns the error %v, the copies alone %v and %v", q.bitsName(), err3, err, err2)
	case err3 == nil && !(same(both, rows) && same(both2, columns)):
		t.Errorf("%s: RowwiseColumnwise of %d×%d differs from Rowwise and Columnwise", q.bitsName(), x.Rows, x.Cols)
	}
}
