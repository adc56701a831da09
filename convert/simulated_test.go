package convert

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestSimulated: of weights that are stored as values beside their scales, dequantize and quantize with Requantize keep
// the values and drop the scales; other conversions advise that.
func TestSimulated(t *testing.T) {
	const layer = "model.layers.0.mlp."
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"lm_head.weight", safetensors.BF16, 0.1, []int64{64, 64}},
		{layer + "up_proj.weight", safetensors.BF16, 0.1, []int64{64, 64}}, {layer + "up_proj.weight_scale", safetensors.F32, 0.1,
			[]int64{64, 1}},
		{layer + "up_proj.weight_zero_point", safetensors.F32, 0.1, []int64{64, 1}}, {layer + "up_proj.input_scale", safetensors.F32, 0.1,
			[]int64{1}},
	}}, `{"model_type": "made", "hidden_size": 64, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "compressed-tensors",
		"format": "dense", "ignore": ["lm_head"], "quantization_status": "frozen", "config_groups": {"group_0": {"targets": ["Linear"],
		"weights": {"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, "strategy": "channel"}}}}}`))
	decoding, err := PlanDequantize(t.Context(), src.Source, safetensors.F32)
	if err != nil {
		t.Fatal(err)
	}
	again, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true})
	if err != nil {
		t.Fatal(err)
	}
	for format, plan := range map[string]*Plan{"bf16": decoding, "mxfp8": again} {
		dst := filepath.Join(t.TempDir(), format)
		if _, err := plan.Run(t.Context(), dst, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		got := openModel(t, dst)
		if w, ok := got.Lookup(layer + "up_proj.weight"); len(got.Weights) != 2 || !ok || w.FormatName() != format || len(got.Problems) > 0 {
			t.Errorf("%s: weights %v, problems %v", format, got.Weights, got.Problems)
		}
		if report, err := verify.Compare(t.Context(), src.Source, got.Source, verify.Options{}); err != nil || !report.OK() {
			t.Errorf("%s: %v (%v)", format, report.Problems, err)
		}
	}
	_, err = planRelabel(src, relabeling{Convention: "plain"})
	if err == nil || !strings.Contains(err.Error(), "dequantize it, or quantize it with --requantize") {
		t.Errorf("convert: error %v", err)
	}
	_, err = PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err == nil || !strings.Contains(err.Error(), "rounded by simulated quantization") {
		t.Errorf("quantize: error %v", err)
	}
}
