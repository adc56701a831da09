package checkpoint

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// fp4 are the values of E2M1.
var fp4 = []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// TestCoded: layouts that no block format has are read as values: code · scale, or code · scale + bias.
func TestCoded(t *testing.T) {
	const rows, cols = 3, 128
	halves := func(n int, from float32) (data []byte) { // BF16
		for i := range n {
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(from+float32(i)/8)>>16))
		}
		return data
	}
	packed := pattern(rows*cols, 3)
	nibble := func(row, col int) float32 { return fp4[packed[(row*cols+col)/2]>>(col%2*4)&15] }
	ue5m3 := pattern(rows*cols/16, 80) // codes 2^(E-15)·(1+M/8), E > 0
	for i := range ue5m3 {
		ue5m3[i] = 0x58 + ue5m3[i]%64
	}
	scale := func(code byte) float32 { return float32(math.Ldexp(1+float64(code&7)/8, int(code>>3)-15)) }
	e4m3 := []byte{0x38, 0x40, 0x44, 0x30, 0x39, 0x3a, 0x2f, 0x7e, 0x01, 0x08, 0x48, 0x3c} // 1 2 3 …
	e4m3Values := []float32{1, 2, 3, 0.5, 1.125, 1.25, 0.46875, 448, 0x1p-9, 0x1p-6, 4, 1.5}
	global := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.37))
	// bits returns code (row, col) of a stream of n-bit codes from the lowest bit on.
	bits := func(row, col, n int) (code float32) {
		for k := range n {
			at := (row*cols+col)*n + k
			code += float32(int(packed[at/8]) >> (at % 8) & 1 << k)
		}
		return code
	}
	affine := func(n int) func(row, col int) float32 {
		return func(row, col int) float32 {
			k := row*cols/64 + col/64
			return float32(bits(row, col, n)*float32(k)/8) + (float32(k)/8 - 4)
		}
	}
	mlxTensors := func(n int) []rawTensor {
		return []rawTensor{{"q.weight", safetensors.U32, []int64{rows, cols * int64(n) / 32}, packed[:rows*cols*n/8]},
			{"q.scales", safetensors.BF16, []int64{rows, cols / 64}, halves(rows*cols/64, 0)},
			{"q.biases", safetensors.BF16, []int64{rows, cols / 64}, halves(rows*cols/64, -4)}}
	}
	for name, c := range map[string]struct {
		config, format string
		tensors        []rawTensor
		want           func(row, col int) float32
	}{
		"ModelOpt": {`{"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8"}`, "nvfp4-32",
			[]rawTensor{{"q.weight", safetensors.U8, []int64{rows, cols / 2}, packed[:rows*cols/2]},
				{"q.weight_scale", safetensors.F8E4M3, []int64{rows, cols / 32}, e4m3},
				{"q.weight_scale_2", safetensors.F32, nil, global}, {"q.input_scale", safetensors.F32, nil, global}},
			func(row, col int) float32 { return float32(e4m3Values[row*cols/32+col/32]*0.37) * nibble(row, col) }},
		"AutoRound": {`{"quant_method": "auto-round", "bits": 4, "data_type": "nvfp4_v2", "group_size": 16}`, "fp4-ue5m3-16",
			[]rawTensor{{"q.weight_packed", safetensors.U8, []int64{rows, cols / 2}, packed[:rows*cols/2]},
				{"q.weight_scale", safetensors.U8, []int64{rows, cols / 16}, ue5m3}},
			func(row, col int) float32 { return scale(ue5m3[row*cols/16+col/16]) * nibble(row, col) }},
		"Quark": {`{"quant_method": "quark", "export": {}, "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32, ` +
			`"scale_format": "e5m3"}}}`,
			"fp4-ue5m3-32",
			[]rawTensor{{"q.weight", safetensors.U8, []int64{rows, cols / 2}, packed[:rows*cols/2]},
				{"q.weight_scale", safetensors.U8, []int64{rows, cols / 32}, ue5m3[:rows*cols/32]}},
			func(row, col int) float32 { return scale(ue5m3[row*cols/32+col/32]) * nibble(row, col) }},
		"MLX, 4 bits": {`{"bits": 4, "group_size": 64}`, "affine4", mlxTensors(4), affine(4)},
		"MLX, 3 bits": {`{"bits": 3, "group_size": 64, "mode": "affine"}`, "affine3", mlxTensors(3), affine(3)},
		"MLX, 5 bits": {`{"bits": 5, "group_size": 64, "mode": "affine"}`, "affine5", mlxTensors(5), affine(5)},
		"MLX, 8 bits": {`{"bits": 8, "group_size": 64, "mode": "affine"}`, "affine8", mlxTensors(8), affine(8)},
		"MLX, by name": {`{"bits": 4, "group_size": 32, "mode": "mxfp4", "q": {"bits": 8, "group_size": 64}}`, "affine8",
			mlxTensors(8), affine(8)},
	} {
		t.Run(name, func(t *testing.T) {
			m := readRaw(t, `{"model_type": "llama", "quantization_config": `+c.config+`}`, nil, c.tensors...)
			if len(m.Problems) > 0 || len(m.Decoded) != 1 || m.Decoded[0] != c.format {
				t.Fatalf("decoded %v, problems %v", m.Decoded, m.Problems)
			}
			checkValues(t, m, "q.weight", c.want)
			w, _ := m.Lookup("q.weight")
			x, err := w.ReadTile(Tile{From: 1, To: 3, FromCol: 97, ToCol: 112})
			if err != nil {
				t.Fatal(err)
			}
			for i := range x.Rows {
				for j, v := range x.Row(i) {
					if v != c.want(i+1, j+97) {
						t.Fatalf("(%d, %d) is %g, want %g", i+1, j+97, v, c.want(i+1, j+97))
					}
				}
			}
			if w.Quantized() || !w.Decoded() || w.HasRowsBF16() || w.FormatName() != c.format {
				t.Errorf("%s is %s", w.Name, w.FormatName())
			}
		})
	}
}

// TestCodedDamage: tensors that do not fit the layout are a problem, and no values.
func TestCodedDamage(t *testing.T) {
	for name, tensors := range map[string][]rawTensor{
		"scales of another shape": {{"q.scales", safetensors.BF16, []int64{4, 1}, nil}, {"q.biases", safetensors.BF16, []int64{4, 1}, nil}},
		"no biases":               {{"q.scales", safetensors.BF16, []int64{4, 2}, nil}},
		"other biases":            {{"q.scales", safetensors.BF16, []int64{4, 2}, nil}, {"q.biases", safetensors.F16, []int64{4, 2}, nil}},
	} {
		m := readRaw(t, `{"model_type": "llama", "quantization_config": {"bits": 8, "group_size": 64}}`, nil,
			append(tensors, rawTensor{"q.weight", safetensors.U32, []int64{4, 32}, nil})...)
		if len(m.Decoded) > 0 || len(m.Problems) == 0 || m.Problems[0].Harmless() ||
			!strings.HasPrefix(m.Problems[len(m.Problems)-1].String(), "q.") {
			t.Errorf("%s: decoded %v, problems %v", name, m.Decoded, m.Problems)
		}
	}
}
