package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestQuarkIntegers: integers of Quark are read as (code − zero point) · scale, in every scheme, also in tiles that begin within a word.
func TestQuarkIntegers(t *testing.T) {
	const rows, cols, group = 16, 64, 32
	code := func(row, col, bits int) int { return (row*29 + col*11 + row*col) % (1 << bits) }
	zero := func(k, bits int) int { return (k*5 + 3) % (1 << bits) }
	signed := func(n, bits int, of string) float32 {
		if of[0] == 'i' && n >= 1<<(bits-1) {
			n -= 1 << bits
		}
		return float32(n)
	}
	orders := map[string][]int{"reorder": {0, 2, 4, 6, 1, 3, 5, 7}, "order": {0, 1, 2, 3, 4, 5, 6, 7}} // elements by their places
	pack := "reorder"
	// packed has a matrix of codes: bytes, or words of eight elements.
	packed := func(name string, dims []int64, height, width, bits int, of func(i, j int) int) rawTensor {
		r := rawTensor{name: name, dtype: safetensors.I8, shape: dims}
		for i := range height {
			if bits == 8 {
				for j := range width {
					r.data = append(r.data, byte(of(i, j)))
				}
				continue
			}
			r.dtype = safetensors.I32
			for j := 0; j < width; j += 8 {
				var word uint32
				for place, element := range orders[pack] {
					word |= uint32(of(i, j+element)) << (4 * place)
				}
				r.data = binary.LittleEndian.AppendUint32(r.data, word)
			}
		}
		return r
	}
	for _, dtype := range []string{"int4", "uint4", "int8", "uint8"} {
		for _, scheme := range []string{"per_group", "per_channel", "per_tensor", "progressive", "per_group in order", "per_channel in order"} {
			scheme, inOrder := strings.CutSuffix(scheme, " in order")
			axis, export := 0, "{}"
			if pack = "reorder"; inOrder {
				pack, export = "order", `{"pack_method": "order"}`
			}
			if scheme == "per_group" {
				axis = -1
			}
			bits, each := 8, int64(1)
			if strings.HasSuffix(dtype, "4") {
				bits, each = 4, 8
			}
			number := func(row, col int) int { // of the scale
				return map[string]int{"per_group": col/group*rows + row, "per_channel": row, "progressive": row}[scheme]
			}
			height, width, n := rows, cols, rows
			dims, zeroDims := []int64{rows, cols / each}, []int64{rows / each}
			scaleDims, of := []int64{rows}, func(i, j int) int { return code(i, j, bits) }
			zeroHeight, zeroWidth := 1, rows
			switch scheme {
			case "per_group":
				height, width, n = cols, rows, rows*cols/group
				dims, of = []int64{cols, rows / each}, func(i, j int) int { return code(j, i, bits) }
				scaleDims, zeroDims, zeroHeight = []int64{cols / group, rows}, []int64{cols / group, rows / each}, cols/group
			case "per_tensor":
				if bits == 4 {
					continue // of one zero point there is no word
				}
				n, scaleDims, zeroDims, zeroWidth = 1, nil, nil, 1
			}
			var scales []byte
			scale := func(k int) float32 { return 1 + float32(k)/64 }
			for k := range n {
				scales = binary.LittleEndian.AppendUint16(scales, uint16(math.Float32bits(scale(k))>>16))
			}
			suffix, global := "", float32(1)
			spec := fmt.Sprintf(`{"dtype": %q, "qscheme": %q, "group_size": %d, "ch_axis": %d}`, dtype, scheme, group, axis)
			tensors := []rawTensor{packed("q.weight", dims, height, width, bits, of)}
			if scheme == "progressive" {
				suffix, global = "_2", 0.37
				spec = strings.Replace(fmt.Sprintf(`[{"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, %s]`, spec), scheme, "per_channel", 1)
				tensors = append(tensors, rawTensor{"q.weight_scale", safetensors.F32, nil,
					binary.LittleEndian.AppendUint32(nil, math.Float32bits(global))})
			}
			tensors = append(tensors, rawTensor{"q.weight_scale" + suffix, safetensors.BF16, scaleDims, scales},
				packed("q.weight_zero_point"+suffix, zeroDims, zeroHeight, zeroWidth, bits, func(i, j int) int { return zero(i*zeroWidth+j, bits) }))
			if dtype == "uint8" {
				for i := range tensors {
					if tensors[i].dtype == safetensors.I8 {
						tensors[i].dtype = safetensors.U8
					}
				}
			}
			m := readRaw(t, `{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "quark", "export": `+export+`, `+
				`"global_quant_config": {"weight": `+spec+`}}}`, nil, tensors...)
			if len(m.Problems) > 0 || len(m.Weights) != 1 {
				t.Fatalf("%s %s: %d weights, problems %v", dtype, scheme, len(m.Weights), m.Problems)
			}
			want := func(row, col int) float32 {
				k := number(row, col)
				return (signed(code(row, col, bits), bits, dtype) - signed(zero(k, bits), bits, dtype)) * scale(k) * global
			}
			checkValues(t, m, "q.weight", want)
			tile := Tile{From: 3, To: 12, FromCol: group, ToCol: cols - 3}
			x, err := m.Weights[0].ReadTile(tile)
			if err != nil {
				t.Fatal(err)
			}
			for i := range x.Rows {
				for j, v := range x.Row(i) {
					if v != want(3+i, group+j) {
						t.Fatalf("%s %s: row %d, column %d is %g, want %g", dtype, scheme, 3+i, group+j, v, want(3+i, group+j))
					}
				}
			}
		}
	}
}

// TestQuarkZeroPoints: the zero points of rows are whole words, as Quark writes them, or the weight is not read.
func TestQuarkZeroPoints(t *testing.T) {
	m := readRaw(t, `{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "quark", "export": {}, "global_quant_config": `+
		`{"weight": {"dtype": "int4", "qscheme": "per_channel", "ch_axis": 0}}}}`, nil,
		rawTensor{"q.weight", safetensors.I32, []int64{12, 2}, make([]byte, 96)},
		rawTensor{"q.weight_scale", safetensors.BF16, []int64{12}, make([]byte, 24)},
		rawTensor{"q.weight_zero_point", safetensors.I32, []int64{1}, make([]byte, 4)})
	if len(m.Problems) == 0 {
		t.Errorf("weights %v of 12 rows with 8 zero points: no problem", m.Weights)
	}
}

// TestQuarkLayouts: each layout of integers is kept once, however many modules have it.
func TestQuarkLayouts(t *testing.T) {
	const weight = `{"weight": {"dtype": "int4", "qscheme": "per_channel", "ch_axis": 0}}`
	d, err := recognizeQuark([]byte(`{"export": {}, "layer_quant_config": {"a": ` + weight + `, "b": ` + weight + `}}`))
	if err != nil || len(d.coded) != 1 {
		t.Errorf("%d layouts (%v)", len(d.coded), err)
	}
}

// TestQuarkDamaged: the tensor and the shapes of what contradicts a layout of integers are named, and nothing else is a problem.
func TestQuarkDamaged(t *testing.T) {
	for want, c := range map[string]struct {
		scales, zeros []int64 // nil: none
		dtype         safetensors.Dtype
	}{
		"":                                       {[]int64{3, 16}, []int64{3, 2}, safetensors.I32},
		"q.weight: weight_scale is missing":      {nil, []int64{3, 2}, safetensors.I32},
		"q.weight: weight_zero_point is missing": {[]int64{3, 16}, nil, safetensors.I32},
		"q.weight_scale: it is BF16 [16 3], and quark-": {[]int64{16, 3}, []int64{3, 2}, safetensors.I32},
		"q.weight_zero_point: it is I32 [3 16], and quark-int4-g32 of shape [16 96] needs I32 [3 2]": {[]int64{3, 16}, []int64{3, 16},
			safetensors.I32},
		"q.weight_zero_point: it is I8 [3 2], and quark-": {[]int64{3, 16}, []int64{3, 2}, safetensors.I8},
	} {
		tensors := []rawTensor{{"q.weight", safetensors.I32, []int64{96, 2}, make([]byte, 768)}}
		if c.scales != nil {
			tensors = append(tensors, rawTensor{"q.weight_scale", safetensors.BF16, c.scales, make([]byte, 96)})
		}
		if c.zeros != nil {
			size := c.zeros[0] * c.zeros[1] * int64(c.dtype.Bits()/8)
			tensors = append(tensors, rawTensor{"q.weight_zero_point", c.dtype, c.zeros, make([]byte, size)})
		}
		m := readRaw(t, `{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "quark", "export": {}, "global_quant_config": `+
			`{"weight": {"dtype": "int4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1}}}}`, nil, tensors...)
		if want == "" && len(m.Problems) > 0 || want != "" && (len(m.Problems) != 1 || !strings.HasPrefix(m.Problems[0].String(), want)) {
			t.Errorf("problems are %v, want %q", m.Problems, want)
		}
	}
}
