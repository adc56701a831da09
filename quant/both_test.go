package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/tensor"
)

// TestKernelsBoth: both copies are those of the plain form, of whole tiles, of less,
// and of more than one strip; from rows with gaps that begin anywhere; of float32 and
// of BF16, in every tier.
func TestKernelsBoth(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for _, q := range append(kernelQuantizers(), Quantizer{Format: BF16}, Quantizer{Format: NVFP4, Hadamard: true}) {
		t.Run(quantizerName(q), func(t *testing.T) {
			for i, shape := range [][2]int{{1, 1}, {64, 64}, {64, 192}, {37, 131}, {96, 48}, {129, 65}, {67, 131}, {64, stripSize + 80}} {
				if q.Hadamard && (shape[0]%hadamardSize > 0 || shape[1]%hadamardSize > 0) || q.Format.Scale != format.E8M0 && shape[1] > stripSize {
					continue
				}
				rows, cols := shape[0], shape[1]
				wide := tensor.New(rows, cols+i)
				edgeBlocks(wide.Data, r, i%3 == 2)
				raw := make([]byte, 2*len(wide.Data))
				for j, v := range wide.Data {
					binary.LittleEndian.PutUint16(raw[2*j:], uint16(math.Float32bits(v)>>16))
				}
				narrow := tensor.BF16{Rows: rows, Cols: cols, Stride: cols + i, Data: raw[2*i:]}
				values := tensor.New(rows, cols)
				for l := range rows {
					widen(values.Row(l), narrow.Row(l))
				}
				type copies func(c Copy) (rows, columns *Tensor, err error)
				for _, from := range []struct {
					plain tensor.Dense
					both  copies
				}{
					{wide.View(0, rows, i, i+cols), func(c Copy) (*Tensor, *Tensor, error) { return Both(wide.View(0, rows, i, i+cols), c, c) }},
					{values, func(c Copy) (*Tensor, *Tensor, error) { return BothBF16(narrow, c, c) }},
				} {
					var wantRows, wantColumns *Tensor
					plainly(t, func() {
						wantRows, wantColumns = must(t)(q.Rowwise(from.plain, With{})), must(t)(q.Columnwise(from.plain, With{}))
					})
					cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
						for threads := range 3 {
							gotRows, gotColumns, err := from.both(Copy{q, With{Threads: threads}})
							if err != nil {
								t.Fatal(err)
							}
							sameTensor(t, gotRows, wantRows)
							sameTensor(t, gotColumns, wantColumns)
						}
						for threads := range 2 {
							sameTensor(t, must(t)(q.Columnwise(from.plain, With{Threads: threads})), wantColumns)
							sameTensor(t, must(t)(q.ColumnwiseBF16(narrow, With{Threads: threads})), must(t)(q.Columnwise(values, With{})))
						}
					})
				}
			}
		})
	}
}

// TestBothStreams: the same of sources whose codes are written past the caches.
func TestBothStreams(t *testing.T) {
	for _, shape := range [][2]int{{2*bandRows + 2*tileSide, 3*stripSize + 228}, {bandRows, 8*stripSize + 1}} {
		testBothStreams(t, shape[0], shape[1])
	}
}

func testBothStreams(t *testing.T, rows, cols int) {
	r := rand.New(rand.NewPCG(21, 22))
	narrow := tensor.OfBF16(rows, cols, make([]byte, 2*rows*cols))
	if len(narrow.Data) < streamBytes {
		t.Fatalf("%d×%d elements of BF16 are not written past the caches", rows, cols)
	}
	x := tensor.New(rows, cols)
	edgeBlocks(x.Data, r, true)
	if err := tensor.ToBytes(narrow.Data, x.Data, format.BF16); err != nil {
		t.Fatal(err)
	}
	widen(x.Data, narrow.Data)
	for _, q := range []Quantizer{{Format: MXFP8}, {Format: MXFP4}} {
		var wantRows, wantColumns *Tensor
		plainly(t, func() {
			wantRows, wantColumns = must(t)(q.Rowwise(x, With{})), must(t)(q.Columnwise(x, With{}))
		})
		eachKernel(t, func(t *testing.T) {
			c := Copy{Quantizer: q}
			for _, both := range []func() (*Tensor, *Tensor, error){
				func() (*Tensor, *Tensor, error) { return Both(x, c, c) },
				func() (*Tensor, *Tensor, error) { return BothBF16(narrow, c, c) },
			} {
				gotRows, gotColumns, err := both()
				if err != nil {
					t.Fatal(err)
				}
				sameTensor(t, gotRows, wantRows)
				sameTensor(t, gotColumns, wantColumns)
			}
			sameTensor(t, must(t)(q.Columnwise(x, With{})), wantColumns)
			sameTensor(t, must(t)(q.ColumnwiseBF16(narrow, With{})), wantColumns)
		})
	}
}

// BenchmarkBoth sets the two copies that training keeps beside each of them alone:
// in the second-level cache, in the third, from memory, and there with rows a power
// of two apart. It counts the bytes of the source.
func BenchmarkBoth(b *testing.B) {
	for _, shape := range []struct{ rows, cols int }{{32, 2048}, {64, 1024}, {1024, 768}, {8192, 8256}, {8192, 8192}} {
		x := benchMatrix(shape.rows, shape.cols)
		raw := make([]byte, 2*len(x.Data))
		if err := tensor.ToBytes(raw, x.Data, format.BF16); err != nil {
			b.Fatal(err)
		}
		narrow := tensor.OfBF16(x.Rows, x.Cols, raw)
		for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP4} {
			c := Copy{Quantizer{Format: f}, With{Threads: 1}}
			row, col := c, c
			row.With.Into = must(b)(c.Quantizer.Rowwise(x, c.With))
			col.With.Into = must(b)(c.Quantizer.Columnwise(x, c.With))
			for _, v := range []struct {
				source, copies string
				bytes          int
				run            func() error
			}{
				{"f32", "rowwise", 4, func() error { _, err := row.Quantizer.Rowwise(x, row.With); return err }},
				{"f32", "columnwise", 4, func() error { _, err := col.Quantizer.Columnwise(x, col.With); return err }},
				{"f32", "both", 4, func() error { _, _, err := Both(x, row, col); return err }},
				{"bf16", "rowwise", 2, func() error { _, err := row.Quantizer.RowwiseBF16(narrow, row.With); return err }},
				{"bf16", "columnwise", 2, func() error { _, err := col.Quantizer.ColumnwiseBF16(narrow, col.With); return err }},
				{"bf16", "both", 2, func() error { _, _, err := BothBF16(narrow, row, col); return err }},
			} {
				b.Run(fmt.Sprintf("format=%s/source=%s/rows=%d/cols=%d/copies=%s", f, v.source, shape.rows, shape.cols, v.copies), func(b *testing.B) {
					b.SetBytes(int64(v.bytes * len(x.Data)))
					for b.Loop() {
						if err := v.run(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
