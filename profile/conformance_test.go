package profile_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

var update = flag.Bool("update", false, "write the files of conformance")

// A conformanceCase describes what one profile makes of the input of a file: tensors PROFILE.codes, .scales, .global and .decoded.
type conformanceCase struct {
	File    string `json:"file"`
	Format  string `json:"format"`
	Profile string `json:"profile"` // or everyCode
	Version string `json:"version,omitempty"`
	Element string `json:"element"`
	Bits    int    `json:"bits"` // of a code, in little-endian streams: the first element in the lowest bits
	Scale   string `json:"scale"`
	Block   [2]int `json:"block"` // rows and columns; 0 is all
	Rows    int    `json:"rows"`
	Cols    int    `json:"cols"`
	Global  bool   `json:"global"`
	Product string `json:"product"`
}

// TestConformance: the files of conformance are what the reference implementation computes.
func TestConformance(t *testing.T) {
	dir := filepath.Join("..", "conformance")
	cases, written := []conformanceCase{}, map[string][]byte{}
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		found, file := conformanceOf(t, f)
		cases, written[f.Name+".safetensors"] = append(cases, found...), file
	}
	document, err := json.MarshalIndent(cases, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	written["corpus.json"] = append(document, '\n')
	for name, data := range written {
		path := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, data) {
			t.Errorf("%s differs from what this program computes (error %v): go test ./profile -run TestConformance -update writes it", path, err)
		}
	}
	stored, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(stored) != len(written)-1 {
		t.Errorf("%d of %d files, error %v", len(stored), len(written)-1, err)
	}
}

// conformanceOf returns the cases of a format, and the file of their tensors.
func conformanceOf(t *testing.T, f quant.Format) (cases []conformanceCase, file []byte) {
	t.Helper()
	x := conformanceInput(f)
	var specs []safetensors.Spec
	data := map[string][]byte{}
	add := func(name string, dtype safetensors.Dtype, raw []byte, shape ...int64) {
		specs = append(specs, safetensors.Spec{Name: name, Dtype: dtype, Shape: shape})
		data[name] = raw
	}
	rows, cols := int64(x.Rows), int64(x.Cols)
	add("input", safetensors.BF16, x.Data, rows, cols)
	addCase := func(name, version string, made *quant.Tensor) {
		high, wide := made.ScaleShape()
		dtype := map[*format.Scalar]safetensors.Dtype{format.F32: safetensors.F32, format.BF16: safetensors.BF16}[f.Scale]
		if f.ByteScales() {
			dtype = safetensors.U8
		}
		rows, cols := int64(made.Rows()), int64(made.Cols())
		add(name+".codes", safetensors.U8, made.Codes, rows, int64(made.RowBytes()))
		add(name+".scales", dtype, made.ScaleBytes(), int64(high), int64(wide))
		if f.Global {
			add(name+".global", safetensors.F32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(made.Global)), 1)
		}
		var decoded []byte
		for _, v := range made.Dequantize(1).Data {
			if v != v {
				v = float32(math.NaN()) // processors differ in the sign of a product of two NaN
			}
			decoded = binary.LittleEndian.AppendUint32(decoded, math.Float32bits(v))
		}
		add(name+".decoded", safetensors.F32, decoded, rows, cols)
		product := "scale * code"
		if f.Global {
			product = "(scale * global) * code"
		}
		cases = append(cases, conformanceCase{File: f.Name + ".safetensors", Format: f.Name, Profile: name, Version: version,
			Element: f.Element.Name, Bits: f.Element.StoredBits(), Scale: f.Scale.Name, Block: [2]int{f.Block.Rows, f.Block.Cols},
			Rows: made.Rows(), Cols: made.Cols(), Global: f.Global, Product: product})
	}
	for _, p := range profile.All() {
		q, err := p.Quantizer(f)
		if err != nil {
			continue
		}
		made, err := q.ReferenceBF16(x, quant.Rowwise, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		addCase(p.Name, p.Version, made)
	}
	addCase(everyCode, "", codesOf(t, f))
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	file = make([]byte, layout.FileSize())
	copy(file, layout.HeaderBytes())
	for name, raw := range data {
		at, ok := layout.Offset(name)
		if !ok {
			t.Fatal(name)
		}
		copy(file[at:], raw)
	}
	return cases, file
}

// everyCode is the profile of cases that are only decoded.
const everyCode = "every-code"

// codesOf returns a tensor of rows of all codes, NaN and Inf among them, under scales from the smallest to the largest and NaN.
func codesOf(t *testing.T, f quant.Format) *quant.Tensor {
	t.Helper()
	const rows, cols = 3, 256
	made, err := quant.Quantizer{Format: f}.Reference(tensor.New(rows, cols), quant.Rowwise, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	codes := make([]byte, rows*cols)
	for i := range codes {
		codes[i] = byte(i) & byte(1<<f.Element.Bits()-1)
	}
	if made.Codes = codes; f.Element.StoredBits() < 8 {
		made.Codes = make([]byte, rows*made.RowBytes())
		f.Element.Join(made.Codes, codes)
	}
	bytes := []byte{0, 1, 0x7e, 0x7f, 8, 0x38, 0x40, 7}
	if f.Scale == format.E8M0 {
		bytes = []byte{0, 127, 255, 254, 1, 126, 128, 40}
	}
	for i := range made.Scales {
		made.Scales[i] = bytes[i%len(bytes)]
	}
	for i := range made.Scales32 {
		made.Scales32[i] = f.Scale.Decode(f.Scale.Encode([]float32{0.75, 3e38, float32(math.NaN()), 0x1.8p-132}[i%4]))
	}
	if f.Global {
		made.Global = 0.3
	}
	return made
}

// conformanceInput returns rows of 128 values at the edges of a format: zeros, the values of conformanceEdges under several powers of two,
// maxima around the thresholds of the scale rules, the smallest and the largest numbers.
func conformanceInput(f quant.Format) tensor.BF16 {
	const cols = 128
	e, edges := f.Element, conformanceEdges(f.Element)
	exponents := []int{0, -3, 5, -11, 9, -20}
	switch {
	case f.Block.Rows != 1: // rows share scales, so that smaller ones become zeros
		exponents = []int{0, 0, 0, 0, 0, -3, -11}
	case !f.NeedsAmax():
		exponents = append(exponents, -100, 100, -126-e.MaxExponent(), 127-e.MaxExponent())
	}
	x := make([]byte, 0, 2*cols*(len(exponents)+2))
	put := func(v float64) {
		x = binary.LittleEndian.AppendUint16(x, uint16(format.BF16.Encode(float32(v))))
	}
	for i := range cols { // a row of zeros, half of them negative, and tiny values in its last quarter
		v := math.Copysign(0, float64(1-i&1*2))
		if i >= 3*cols/4 {
			v = math.Ldexp(float64(i-3*cols/4+1), -133)
		}
		put(v)
	}
	n := 0 // of the edges that were put
	for r, k := range exponents {
		for i := range cols {
			switch {
			case i%16 != 0:
				const stride = 11 // no divisor of a number of edges, so that all come in turn
				v := float64(edges[n*stride%len(edges)])
				if n/len(edges)%2 == 1 {
					v = -v
				}
				put(math.Ldexp(v, k))
				n++
			case f.Scale != format.E8M0 && r%2 == 0: // the edges are those of the codes under this maximum
				put(math.Ldexp(float64(e.Max()), k))
			default: // maxima that approach the largest value and twice it
				put(math.Ldexp(1+float64((r*cols+i*5)%128)/128, k+e.MaxExponent()))
			}
		}
	}
	return tensor.OfBF16(len(x)/(2*cols), cols, x)
}

// conformanceEdges returns the values of an element format, and the midpoints of neighbors with their neighbors in BF16.
func conformanceEdges(e *format.Scalar) (edges []float32) {
	for code := range 1 << (e.Bits() - 1) {
		low, high := e.Decode(uint32(code)), e.Decode(uint32(code)+1)
		if high-high == 0 && low < high {
			middle := low/2 + high/2
			bits := math.Float32bits(middle)
			edges = append(edges, low, -middle, math.Float32frombits(bits+1<<16), -math.Float32frombits(bits-min(bits, 1<<16)))
		}
	}
	return append(edges, e.Max())
}

// TestConformanceInput: inputs have every value, and every midpoint and its neighbors, as they are: under the factor 1 or another one.
func TestConformanceInput(t *testing.T) {
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		x := conformanceInput(f)
		for _, edge := range conformanceEdges(f.Element) {
			found := false
			for i := 0; i < len(x.Data) && !found; i += 2 {
				v := format.BF16.Decode(uint32(binary.LittleEndian.Uint16(x.Data[i:])))
				for _, k := range []int{0, -3, 5, -11, 9, -20} {
					found = found || v == float32(math.Ldexp(float64(edge), k)) && i/2%16 != 0
				}
			}
			if !found {
				t.Errorf("%s: the input has no %v", f, edge)
			}
		}
	}
}
