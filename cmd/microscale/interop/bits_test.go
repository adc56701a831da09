package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A library is a program whose quantizers are compared with profiles, bit for bit.
type library struct {
	name        string
	version     string
	profile     string
	script      string // of this folder; see bits.py
	interpreter func(t *testing.T) string
	arguments   func(t *testing.T) []string // of the script, after the directory; nil: none
	rows        []bitsRow
}

// A bitsRow is one block format of a library with certain options.
type bitsRow struct {
	format  quant.Format
	sources string                 // dtypes of the source: "f32", "bf16" or both
	option  string                 // what the script calls it
	change  func(*quant.Quantizer) // what the option changes in the profile; nil: nothing
	known   []difference
}

// A difference is one that the profile does not reproduce on purpose, as the documentation of
// package profile lists. The test fails if no input shows the difference, so that the list
// stays true.
type difference struct {
	why string
	is  func(b block) bool
}

// A block has the elements that share a scale, and the amax of the tensor for its global scale.
type block struct {
	elements   []float32
	amax       float32 // of the elements; NaN ignored
	tensorAmax float32
	nan, inf   bool
	tensorNaN  bool
	source     string

	// tensorSpecial: the tensor has a NaN or an Inf, in this block or another.
	tensorSpecial bool
}

// libraries are the libraries under test, each in bits_NAME_test.go and bits_NAME.py.
var libraries = []library{
	torchaoBits,
	torchaoRceilBits,
	modeloptBits,
	microxcalingBits,
	ggufBits,
	ggmlBits,
	compressedTensorsBits,
	quarkBits,
	mlxBits,
	mlxOlderBits,
}

// bitsTorch returns the interpreter of an environment with the PyTorch whose casts the profiles
// reproduce, and other packages. It skips the test without -torch.
func bitsTorch(requirements ...string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		if !*installTorch {
			skipf(t, "PyTorch is not installed without -torch: go test ./cmd/microscale/interop -run 'TestBits|TestTorchCasts|TestMMASim' "+
				"-torch -timeout 90m")
		}
		base := python(t, "torch==2.15.0", "numpy==2.4.6")
		if len(requirements) == 0 {
			return base
		}
		return over(t, base, requirements...)
	}
}

// TestBits quantizes random and adversarial blocks with other libraries and with the profiles
// named after them, and compares codes and scales.
func TestBits(t *testing.T) {
	slow.Long(t, "it compares blocks in every format with several libraries")
	for _, l := range libraries {
		t.Run("library="+l.name, func(t *testing.T) {
			p, err := profile.Lookup(l.profile)
			if err != nil {
				t.Fatal(err)
			}
			interpreter := l.interpreter(t)
			t.Logf("%s %s", l.name, l.version)
			dir := t.TempDir()
			var jobs []bitsJob
			for i, row := range l.rows {
				for _, source := range strings.Fields(row.sources) {
					jobs = append(jobs, newBitsJob(t, dir, fmt.Sprintf("%02d-%s", i, source), row, source))
				}
			}
			list, err := json.Marshal(jobs)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "jobs.json"), list, 0o644); err != nil {
				t.Fatal(err)
			}
			arguments := []string{dir}
			if l.arguments != nil {
				arguments = append(arguments, l.arguments(t)...)
			}
			script(t, interpreter, l.script, arguments...)
			for _, job := range jobs {
				name := fmt.Sprintf("format=%s/source=%s", job.Format, job.Source)
				if job.Option != "" {
					name += "/option=" + job.Option
				}
				t.Run(name, func(t *testing.T) {
					q, err := p.Quantizer(job.row.format)
					if err != nil {
						t.Fatal(err)
					}
					if job.row.change != nil {
						job.row.change(&q)
					}
					job.compare(t, dir, q)
				})
			}
		})
	}
}

// A bitsJob is the request to bits.py for a row and a dtype. NAME.in holds the tensors,
// contiguous. The script writes NAME.codes, one byte per element; NAME.scales, the bytes of the
// scales, row by row; and, if the format has a global scale, NAME.global, the decode scale of
// each tensor as float32.
type bitsJob struct {
	Name    string `json:"name"`
	Format  string `json:"format"`
	Option  string `json:"option"`
	Source  string `json:"source"`
	Tensors int    `json:"tensors"`
	Rows    int    `json:"rows"`
	Cols    int    `json:"cols"`

	row    bitsRow
	inputs []tensor.Dense
}

func newBitsJob(t *testing.T, dir, name string, row bitsRow, source string) bitsJob {
	t.Helper()
	inputs := bitsInputs(row.format, source == "bf16")
	j := bitsJob{Name: name, Format: row.format.Name, Option: row.option, Source: source,
		Tensors: len(inputs), Rows: inputs[0].Rows, Cols: inputs[0].Cols, row: row, inputs: inputs}
	var data []byte
	for _, x := range inputs {
		data = append(data, j.bytes(t, x)...)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".in"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return j
}

// bytes returns x in the dtype of the source, little-endian.
func (j *bitsJob) bytes(t *testing.T, x tensor.Dense) []byte {
	t.Helper()
	if j.Source == "f32" {
		data := make([]byte, 0, 4*len(x.Data))
		for _, v := range x.Data {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data
	}
	data := make([]byte, 0, 2*len(x.Data))
	for _, v := range x.Data { // exact: bitsInputs made them so
		data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16))
	}
	return data
}

// compare quantizes the inputs with q and compares the result with the output of the script.
func (j *bitsJob) compare(t *testing.T, dir string, q quant.Quantizer) {
	codes, scales := read(t, dir, j.Name+".codes"), read(t, dir, j.Name+".scales")
	var globals []byte
	if q.Format.Global {
		globals = read(t, dir, j.Name+".global")
	}
	shown := make([]int, len(j.row.known))
	const maxShown = 10
	failed, blocks := 0, 0
	for i, x := range j.inputs {
		got := j.quantize(t, q, x)
		gotCodes := make([]byte, got.Rows()*got.Cols())
		if len(gotCodes) > len(codes) || len(got.ScaleBytes()) > len(scales) || q.Format.Global && len(globals) < 4 {
			t.Fatalf("tensor %d of %d: %d bytes of codes, %d of scales and %d of global scales are left", i, len(j.inputs), len(codes), len(scales),
				len(globals))
		}
		splitCodes(gotCodes, got)
		wantCodes, wantScales := codes[:len(gotCodes)], scales[:len(got.ScaleBytes())]
		codes, scales = codes[len(gotCodes):], scales[len(wantScales):]
		global := ""
		if q.Format.Global {
			if want := binary.LittleEndian.Uint32(globals); !sameFloat(want, math.Float32bits(got.Global)) {
				global = fmt.Sprintf(", global scale %08x, ours %08x", want, math.Float32bits(got.Global))
			}
			globals = globals[4:]
		}
		for _, b := range scaledBlocks(x, q.Format) {
			blocks++
			their, our := b.pick(wantCodes), b.pick(gotCodes)
			theirScale, ourScale := b.scaleOf(wantScales, q.Format), b.scaleOf(got.ScaleBytes(), q.Format)
			if sameCodes(their, our, q.Format.Element) && sameScale(theirScale, ourScale) && global == "" {
				continue
			}
			b.block.source = j.Source
			if k := knownAs(j.row.known, b.block); k >= 0 {
				shown[k]++
				continue
			}
			if failed++; failed <= maxShown {
				at := firstDifference(their, our, q.Format.Element)
				t.Errorf("tensor %d: amax %08x of %08x, %s: scale %x, ours %x%s; codes differ at element %d (%08x): %02x, ours %02x",
					i, math.Float32bits(b.amax), math.Float32bits(b.tensorAmax), j.Source, theirScale, ourScale, global,
					at, math.Float32bits(b.elements[at]), their[at], our[at])
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d blocks differ", failed, blocks)
	}
	if len(codes)+len(scales)+len(globals) > 0 {
		t.Errorf("the script wrote %d bytes of codes, %d of scales and %d of global scales too many", len(codes), len(scales), len(globals))
	}
	for k, d := range j.row.known {
		if shown[k] == 0 {
			t.Errorf("no block shows the known difference: %s", d.why)
		}
		t.Logf("%d of %d blocks: %s", shown[k], blocks, d.why)
	}
}

func (j *bitsJob) quantize(t *testing.T, q quant.Quantizer, x tensor.Dense) *quant.Tensor {
	t.Helper()
	var got *quant.Tensor
	var err error
	if j.Source == "bf16" {
		got, err = q.RowwiseBF16(tensor.OfBF16(x.Rows, x.Cols, j.bytes(t, x)), quant.With{Threads: 1})
	} else {
		got, err = q.Rowwise(x, quant.With{Threads: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// splitCodes sets codes to those of a tensor, one per byte, without the padding of partial
// blocks.
func splitCodes(codes []byte, q *quant.Tensor) {
	element := q.Format.Element
	stored := len(q.Codes) / max(1, q.Rows())
	wide := make([]byte, stored*8/element.StoredBits())
	for r := range q.Rows() {
		element.Split(wide, q.Codes[r*stored:(r+1)*stored])
		copy(codes[r*q.Cols():(r+1)*q.Cols()], wide)
	}
}

// A scaledBlock is a block with the indices of its elements and its scale in a tensor.
type scaledBlock struct {
	block
	places []int
	scale  int
}

// scaledBlocks returns the blocks of x in the order of their scales.
func scaledBlocks(x tensor.Dense, f quant.Format) []scaledBlock {
	height, width := f.Block.Rows, f.Block.Cols
	if height == 0 {
		height = x.Rows
	}
	if width == 0 {
		width = x.Cols
	}
	tensorAmax := quant.Amax(x, 1)
	tensorSpecial := slices.ContainsFunc(x.Data, func(v float32) bool { return v-v != 0 })
	tensorNaN := slices.ContainsFunc(x.Data, func(v float32) bool { return v != v })
	var all []scaledBlock
	for r := 0; r < x.Rows; r += height {
		for c := 0; c < x.Cols; c += width {
			b := scaledBlock{scale: len(all), block: block{tensorAmax: tensorAmax, tensorNaN: tensorNaN, tensorSpecial: tensorSpecial}}
			for i := r; i < min(r+height, x.Rows); i++ {
				for j := c; j < min(c+width, x.Cols); j++ {
					v := x.Row(i)[j]
					b.places = append(b.places, i*x.Cols+j)
					b.elements = append(b.elements, v)
					b.nan = b.nan || v != v
					b.inf = b.inf || math.IsInf(float64(v), 0)
					if a := float32(math.Abs(float64(v))); a > b.amax {
						b.amax = a
					}
				}
			}
			all = append(all, b)
		}
	}
	return all
}

func (b *scaledBlock) pick(codes []byte) []byte {
	picked := make([]byte, len(b.places))
	for i, p := range b.places {
		picked[i] = codes[p]
	}
	return picked
}

func (b *scaledBlock) scaleOf(scales []byte, f quant.Format) []byte {
	size := f.Scale.StoredBits() / 8
	return scales[b.scale*size : (b.scale+1)*size]
}

func knownAs(known []difference, b block) int {
	for k, d := range known {
		if d.is(b) {
			return k
		}
	}
	return -1
}

// sameCode compares codes. All NaNs are equal, because processors differ in the sign of a NaN
// that they generate.
func sameCode(a, b byte, element *format.Scalar) bool {
	x, y := element.Decode(uint32(a)), element.Decode(uint32(b))
	return a == b || x != x && y != y
}

func sameCodes(a, b []byte, element *format.Scalar) bool {
	for i := range a {
		if !sameCode(a[i], b[i], element) {
			return false
		}
	}
	return true
}

func firstDifference(a, b []byte, element *format.Scalar) int {
	for i := range a {
		if !sameCode(a[i], b[i], element) {
			return i
		}
	}
	return 0
}

// sameScale compares the bytes of scales. All float32 NaNs are equal.
func sameScale(a, b []byte) bool {
	if len(a) == 4 {
		return sameFloat(binary.LittleEndian.Uint32(a), binary.LittleEndian.Uint32(b))
	}
	return bytes.Equal(a, b)
}

func sameFloat(a, b uint32) bool {
	x, y := math.Float32frombits(a), math.Float32frombits(b)
	return a == b || x != x && y != y
}
