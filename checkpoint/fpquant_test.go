package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
)

// TestFPQuant: rotated weights are read as W = (W·H)·Hᵀ, for any matrix H, with padded scales too, and in tiles that begin within a group.
// So x·Wᵀ is what a client computes as (x·H)·(W·H)ᵀ.
func TestFPQuant(t *testing.T) {
	const rows, cols, size = 5, 128, 64
	h := make([]float32, size*size)
	var matrix []byte
	for i := range h {
		h[i] = float32(i*i%23-11) / 16
		matrix = binary.LittleEndian.AppendUint16(matrix, uint16(math.Float32bits(h[i])>>16))
	}
	codes := pattern(rows*cols/2, 3)
	for dtype, of := range map[string]struct {
		block int
		scale *format.Scalar
	}{"mxfp4": {32, format.E8M0}, "nvfp4": {16, format.E4M3}} {
		for _, padded := range []bool{false, true} {
			blocks := cols / of.block
			wide, high := blocks, rows
			if padded {
				wide, high = (blocks+3)/4*4, 128
			}
			scales := make([]byte, high*wide)
			for i := range scales {
				scales[i] = byte(100 + i*7%20)
			}
			tensors := []rawTensor{{"q.qweight", safetensors.U8, []int64{rows, cols / 2}, codes},
				{"q.scales", safetensors.U8, []int64{int64(high), int64(wide)}, scales},
				{"q.weight_global_scale", safetensors.BF16, []int64{1}, []byte{0x40, 0x40}}, // 3
				{"q.act_global_scale", safetensors.BF16, []int64{1}, []byte{0x40, 0x40}},
				{"q.forward_hadamard_matrix", safetensors.BF16, []int64{size, size}, matrix},
				{"q.backward_hadamard_matrix", safetensors.BF16, []int64{size, size}, matrix}}
			config := fmt.Sprintf(`{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp_quant", "forward_dtype": %q}}`, dtype)
			m := readRaw(t, config, nil, tensors...)
			if len(m.Problems) > 0 || len(m.Weights) != 1 {
				t.Fatalf("%d weights, problems %v", len(m.Weights), m.Problems)
			}
			codesOnly := func(row, col int) float64 { // of W·H, without the global scale
				code := codes[(row*cols+col)/2] >> (col % 2 * 4) & 15
				return float64(fp4[code]) * float64(of.scale.Decode(uint32(scales[row*wide+col/of.block])))
			}
			want := func(row, col int) float32 {
				sum := 0.0
				for k := range size {
					sum += codesOnly(row, col/size*size+k) * float64(h[col%size*size+k])
				}
				return float32(sum / 3)
			}
			checkValues(t, m, "q.weight", want)
			x, err := m.Weights[0].ReadTile(Tile{From: 1, To: 4, FromCol: 32, ToCol: 96})
			if err != nil || x.Row(2)[40] != want(3, 72) {
				t.Errorf("%s: a tile has %g, want %g (%v)", dtype, x.Row(2)[40], want(3, 72), err)
			}
			for col := range cols { // of x = 1 in one column
				client := 0.0
				for k := range size {
					client += float64(h[col%size*size+k]) * codesOnly(2, col/size*size+k) / 3
				}
				if math.Abs(client-float64(want(2, col))) > 1e-6*math.Abs(client) {
					t.Errorf("%s: column %d contributes %g, and %g in a client", dtype, col, want(2, col), client)
				}
			}
			for i, text := range map[int]string{1: "scales", 2: "weight_global_scale", 4: "forward_hadamard_matrix"} {
				damaged := append([]rawTensor{}, tensors...)
				damaged[i].shape, damaged[i].data = []int64{3, 7}, make([]byte, 21*damaged[i].dtype.Bits()/8)
				if m := readRaw(t, config, nil, damaged...); len(m.Problems) == 0 || !strings.Contains(fmt.Sprint(m.Problems), text) {
					t.Errorf("%s damaged: problems %v", text, m.Problems)
				}
				m := readRaw(t, config, nil, append(append([]rawTensor{}, tensors[:i]...), tensors[i+1:]...)...)
				if len(m.Problems) == 0 || !strings.HasPrefix(m.Problems[0].Text, "q."+text+" is missing") {
					t.Errorf("without %s: problems %v", text, m.Problems)
				}
			}
			for name, changed := range map[string]rawTensor{
				"signed scales": {"q.scales", safetensors.I8, tensors[1].shape, scales},
				"0":             {"q.weight_global_scale", safetensors.BF16, []int64{1}, []byte{0, 0}},
				"-3":            {"q.weight_global_scale", safetensors.BF16, []int64{1}, []byte{0x40, 0xc0}},
				"Inf":           {"q.weight_global_scale", safetensors.BF16, []int64{1}, []byte{0x80, 0x7f}},
				"NaN":           {"q.weight_global_scale", safetensors.BF16, []int64{1}, []byte{0xc0, 0x7f}},
			} {
				damaged := append([]rawTensor{}, tensors...)
				for i := range damaged {
					if damaged[i].name == changed.name {
						damaged[i] = changed
					}
				}
				if m := readRaw(t, config, nil, damaged...); len(m.Problems) == 0 || m.Problems[0].Tensor != changed.name {
					t.Errorf("%s: problems %v", name, m.Problems)
				}
			}
		}
	}
	m := readRaw(t, `{"quantization_config": {"quant_method": "fp_quant", "forward_dtype": "mxfp4"}}`, nil,
		rawTensor{"q.qweight", safetensors.U8, []int64{1, 128}, make([]byte, 128)},
		rawTensor{"q.scales", safetensors.U8, []int64{1, 8}, make([]byte, 8)},
		rawTensor{"q.weight_global_scale", safetensors.BF16, []int64{1}, []byte{0x40, 0x40}},
		rawTensor{"q.forward_hadamard_matrix", safetensors.BF16, []int64{256, 256}, make([]byte, 2*256*256)})
	if len(m.Problems) == 0 || m.Problems[0].Tensor != "q.forward_hadamard_matrix" {
		t.Errorf("a matrix of 256 columns: problems %v", m.Problems)
	}
	for member, want := range map[string]string{`"store_master_weights": true`: "store_master_weights",
		`"pseudoquantization": true`: "dqweight", `"forward_dtype": "mxfp8"`: "mxfp8"} {
		m := readRaw(t, `{"quantization_config": {"quant_method": "fp_quant", "forward_dtype": "mxfp4", `+member+`}}`, nil,
			rawTensor{"q.weight", safetensors.BF16, []int64{32, 32}, nil})
		if len(m.Problems) == 0 || !strings.Contains(m.Problems[0].Text, want) {
			t.Errorf("%s: problems %v", member, m.Problems)
		}
	}
}
