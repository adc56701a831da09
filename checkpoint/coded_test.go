package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
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
	// integers has codes of n bits in groups of 32, whose zero points follow each other down a column.
	zeros := pattern(4*cols/32, 9)
	words := []rawTensor{{"q.weight_zero_point", safetensors.I32, []int64{1, cols / 32}, zeros}}
	order := make([]int, cols)
	var ordered []byte
	for col := range order {
		order[col] = (col*5 + col/7) % (cols / 32)
		ordered = binary.LittleEndian.AppendUint32(ordered, uint32(order[col]))
	}
	integers := func(n int, more ...rawTensor) []rawTensor {
		return append(more, rawTensor{"q.weight_packed", safetensors.I32, []int64{rows, cols * int64(n) / 32}, packed[:rows*cols*n/8]},
			rawTensor{"q.weight_scale", safetensors.BF16, []int64{rows, cols / 32}, halves(rows*cols/32, 1)},
			rawTensor{"q.weight_shape", safetensors.I64, []int64{2}, dims(rows, cols)})
	}
	group := func(row, group int) float32 { return 1 + float32(row*cols/32+group)/8 }
	ct := func(args, format string) string {
		return `{"quant_method": "compressed-tensors", "format": "` + format + `", "config_groups": {"group_0": {"targets": ["Linear"], ` +
			`"weights": {"type": "int", "strategy": "group", "group_size": 32, ` + args + `}}}}`
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
		"compressed-tensors, 3 bits": {ct(`"num_bits": 3`, "pack-quantized"), "int3-g32", integers(3),
			func(row, col int) float32 { return (bits(row, col, 3) - 4) * group(row, col/32) }},
		"compressed-tensors, zero points": {ct(`"num_bits": 5, "symmetric": false`, "pack-quantized"), "int5-g32-asymmetric",
			integers(5, words...), func(row, col int) float32 {
				zero := binary.LittleEndian.Uint32(zeros[col/32*4:]) >> (row * 5) & 31
				return (bits(row, col, 5) - float32(zero)) * group(row, col/32)
			}},
		"compressed-tensors, another order": {ct(`"num_bits": 4, "actorder": "group"`, "pack-quantized"), "int4-g32-ordered",
			integers(4, rawTensor{"q.weight_g_idx", safetensors.I32, []int64{cols}, ordered}),
			func(row, col int) float32 { return (bits(row, col, 4) - 8) * group(row, order[col]) }},
		"compressed-tensors, bytes": {ct(`"num_bits": 4`, "int-quantized"), "int4-g32-in-bytes",
			[]rawTensor{{"q.weight", safetensors.I8, []int64{rows, cols}, packed[:rows*cols]},
				{"q.weight_scale", safetensors.BF16, []int64{rows, cols / 32}, halves(rows*cols/32, 1)}},
			func(row, col int) float32 { return float32(int8(packed[row*cols+col])) * group(row, col/32) }},
		"MLX, by name": {`{"bits": 4, "group_size": 32, "mode": "mxfp4", "q": {"bits": 8, "group_size": 64}}`, "affine8",
			mlxTensors(8), affine(8)},
	} {
		t.Run(name, func(t *testing.T) {
			m := readRaw(t, `{"model_type": "llama", "quantization_config": `+c.config+`}`, nil, c.tensors...)
			lasting := slices.DeleteFunc(slices.Clone(m.Problems), func(p Problem) bool { return p.Misread })
			if len(lasting) > 0 || len(m.Decoded) != 1 || m.Decoded[0] != c.format {
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

// dims returns a weight_shape of I64.
func dims(shape ...int64) (data []byte) {
	for _, n := range shape {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	return data
}

// TestMixedIntegers: INT4 in groups and INT8 in rows of one checkpoint are told apart, although their packed codes have the same names.
func TestMixedIntegers(t *testing.T) {
	const config = `{"model_type": "llama", "quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision",
		"config_groups": {
		"group_0": {"format": "int-quantized", "targets": ["a"], "weights": {"type": "int", "num_bits": 8, "strategy": "channel"},
			"input_activations": {"type": "int", "num_bits": 8, "strategy": "token", "dynamic": true}},
		"group_1": {"format": "pack-quantized", "targets": ["b"], "weights": {"type": "int", "num_bits": 4, "strategy": "group",
			"group_size": 128}}}}}`
	m := readRaw(t, config, nil, rawTensor{"a.weight", safetensors.I8, []int64{4, 128}, make([]byte, 512)},
		rawTensor{"a.weight_scale", safetensors.BF16, []int64{4, 1}, make([]byte, 8)},
		rawTensor{"b.weight_packed", safetensors.I32, []int64{4, 16}, make([]byte, 256)},
		rawTensor{"b.weight_scale", safetensors.BF16, []int64{4, 1}, make([]byte, 8)},
		rawTensor{"b.weight_shape", safetensors.I64, []int64{2}, dims(4, 128)})
	for name, want := range map[string]string{"a.weight": "int8-row", "b.weight": "int4-g128"} {
		if w, ok := m.Lookup(name); !ok || w.Format.Name != want || len(m.Problems) > 0 {
			t.Errorf("%s is %s, want %s (%v)", name, w.FormatName(), want, m.Problems)
		}
	}
}
