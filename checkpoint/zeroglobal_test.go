package checkpoint

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestZeroGlobal: a weight of zeros with the global scale 0, or its inverse 0 or Inf, is read as zeros.
func TestZeroGlobal(t *testing.T) {
	const nvfp4 = `{"num_bits": 4, "type": "float", "symmetric": true, "dynamic": false, "strategy": "tensor_group", "group_size": 16}`
	ct := ctConfiguration("", "nvfp4-pack-quantized", `"g": {"targets": ["Linear"], "weights": `+nvfp4+`}`)
	mo := `{"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}}`
	for _, tc := range []struct {
		config, codes, global string
		stored                float32
		misread               bool
	}{
		{mo, "l.weight", "l.weight_scale_2", 0, false},
		{ct, "l.weight_packed", "l.weight_global_scale", 0, true},
		{ct, "l.weight_packed", "l.weight_global_scale", float32(math.Inf(1)), false},
	} {
		m := readRaw(t, tc.config, nil, rawTensor{tc.codes, safetensors.U8, []int64{4, 16}, nil},
			rawTensor{"l.weight_scale", safetensors.F8E4M3, []int64{4, 2}, nil}, rawTensor{tc.global, safetensors.F32, nil,
				floats(tc.stored)}.shaped(tc.codes))
		checkValues(t, m, "l.weight", func(int, int) float32 { return 0 })
		if len(m.Problems) > 1 || (len(m.Problems) == 1) != tc.misread || tc.misread && !m.Problems[0].Misread {
			t.Errorf("problems: %v", m.Problems)
		}
		w, _ := m.Lookup("l.weight")
		for _, s := range first(w.Relabeled(&compressedTensors, nil)) {
			if s.Part == Global && !tc.misread && tc.stored == 0 && !bytes.Equal(s.Value, floats(1)) {
				t.Errorf("compressed-tensors gets the inverse %v", s.Value)
			}
		}
	}
}

// countingContext counts how often it is asked whether it has ended.
type countingContext struct {
	context.Context
	asked int
}

func (c *countingContext) Err() error {
	c.asked++
	return nil
}

// TestZeroGlobalContext: reading a whole weight because its global scale is 0 ends with the context.
func TestZeroGlobalContext(t *testing.T) {
	m := readRaw(t, `{"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}}`, nil,
		rawTensor{"l.weight", safetensors.U8, []int64{4096, 512}, nil},
		rawTensor{"l.weight_scale", safetensors.F8E4M3, []int64{4096, 64}, nil}, rawTensor{"l.weight_scale_2", safetensors.F32, nil, nil})
	tiles := 0
	for range m.Weights[0].Tiling(m.Weights[0].Format).Tiles(0) {
		tiles++
	}
	var ctx countingContext
	if _, err := ReadContext(&ctx, m.Source); err != nil || tiles < 10 || ctx.asked < tiles {
		t.Errorf("%v: the context was asked %d times in %d tiles", err, ctx.asked, tiles)
	}
}

// TestNegativeScale: no values are read with negative scales of blocks, which clients read differently.
func TestNegativeScale(t *testing.T) {
	e4m3 := make([]byte, 8)
	for i := range e4m3 {
		e4m3[i] = 0x38
	}
	e4m3[5] = 0x80 // -0 changes no magnitude
	negative := slices.Clone(e4m3)
	negative[5] = 0xb8
	for _, tc := range []struct {
		config  string
		tensors []rawTensor
		scale   string
	}{
		{`{"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}`, []rawTensor{{"l.weight", safetensors.U8, []int64{4, 16}, nil},
			{"l.weight_scale", safetensors.F8E4M3, []int64{4, 2}, negative}, {"l.weight_scale_2", safetensors.F32, nil, floats(1)}},
			"row 2, column 16"},
		{`{"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}`, []rawTensor{{"l.weight", safetensors.U8, []int64{4, 16}, nil},
			{"l.weight_scale", safetensors.F8E4M3, []int64{4, 2}, e4m3}, {"l.weight_scale_2", safetensors.F32, nil, floats(1)}}, ""},
		{`{"quant_method": "fp8", "weight_block_size": [128, 128]}`, []rawTensor{{"l.weight", safetensors.F8E4M3, []int64{130, 128}, nil},
			{"l.weight_scale_inv", safetensors.F32, []int64{2, 1}, floats(1, -2)}}, "row 128, column 0"},
		{`{"quant_method": "fp8"}`, []rawTensor{{"l.weight", safetensors.F8E4M3, []int64{2, 128}, nil},
			{"l.weight_scale_inv", safetensors.BF16, []int64{2, 1}, halves(1, -2)}}, "row 1, column 0"},
	} {
		m := readRaw(t, `{"quantization_config": `+tc.config+`}`, nil, tc.tensors...)
		w, ok := m.Lookup("l.weight")
		if !ok || !w.Quantized() {
			t.Fatalf("%s: problems: %v", tc.config, m.Problems)
		}
		rows, _ := w.Matrix()
		_, err := w.Read(0, rows)
		if want := "l.weight: the scale at " + tc.scale + " is negative"; (tc.scale != "") != (err != nil) || err != nil &&
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", tc.config, err, want)
		}
	}
}
