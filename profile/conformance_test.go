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

// A conformanceCase describes what one library writes for the input of a file: tensors PROFILE.codes, .scales, .global and .decoded.
type conformanceCase struct {
	File    string `json:"file"`
	Format  string `json:"format"`
	Profile string `json:"profile"`
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
	for _, p := range profile.All() {
		q, err := p.Quantizer(f)
		if err != nil {
			continue
		}
		made, err := q.ReferenceBF16(x, quant.Rowwise, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		high, wide := made.ScaleShape()
		dtype := map[*format.Scalar]safetensors.Dtype{format.F32: safetensors.F32, format.BF16: safetensors.BF16}[f.Scale]
		if f.ByteScales() {
			dtype = safetensors.U8
		}
		add(p.Name+".codes", safetensors.U8, made.Codes, rows, int64(made.RowBytes()))
		add(p.Name+".scales", dtype, made.ScaleBytes(), int64(high), int64(wide))
		if f.Global {
			add(p.Name+".global", safetensors.F32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(made.Global)), 1)
		}
		var decoded []byte
		for _, v := range made.Dequantize(1).Data {
			decoded = binary.LittleEndian.AppendUint32(decoded, math.Float32bits(v))
		}
		add(p.Name+".decoded", safetensors.F32, decoded, rows, cols)
		product := "scale * code"
		if f.Global {
			product = "(scale * global) * code"
		}
		cases = append(cases, conformanceCase{File: f.Name + ".safetensors", Format: f.Name, Profile: p.Name, Version: p.Version,
			Element: f.Element.Name, Bits: f.Element.StoredBits(), Scale: f.Scale.Name, Block: [2]int{f.Block.Rows, f.Block.Cols}, Rows: x.Rows,
			Cols: x.Cols, Global: f.Global, Product: product})
	}
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

// conformanceInput returns rows of 128 values at the edges of a format: zeros, values and midpoints of the elements with their neighbors in
// BF16 under several scales, maxima around the thresholds of the scale rules, the smallest and the largest numbers.
func conformanceInput(f quant.Format) tensor.BF16 {
	const cols = 128
	e := f.Element
	var edges []float32
	for code := range 1 << (e.Bits() - 1) {
		low, high := e.Decode(uint32(code)), e.Decode(uint32(code)+1)
		if high-high == 0 && low < high {
			middle := low/2 + high/2
			bits := math.Float32bits(middle)
			edges = append(edges, low, -middle, math.Float32frombits(bits+1<<16), -math.Float32frombits(bits-min(bits, 1<<16)))
		}
	}
	exponents := []int{0, -3, 5, -11, 9, -20}
	if !f.NeedsAmax() {
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
	for r, k := range exponents {
		for i := range cols { // blocks of 16 have maxima that approach the largest value and twice it
			v := float64(edges[(r*cols+i*7)%len(edges)])
			if i%16 == 0 {
				v = math.Ldexp(1+float64((r*cols+i*5)%128)/128, e.MaxExponent())
			}
			put(math.Ldexp(v, k))
		}
	}
	return tensor.OfBF16(len(x)/(2*cols), cols, x)
}
