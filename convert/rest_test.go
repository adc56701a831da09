package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestRoundRest: what is in another dtype than a model in BF16 or F16 stays so; the weights of the model become BF16 where a
// client needs that, with a note.
func TestRoundRest(t *testing.T) {
	const bias, head, matrix = "model.layers.0.mlp.gate.e_score_correction_bias", "lm_head.weight", "model.layers.0.mlp.up_proj.weight"
	for _, tc := range []struct {
		declared string
		dtype    safetensors.Dtype
		bias     safetensors.Dtype
		rounded  int
	}{
		{`, "torch_dtype": "bfloat16"`, safetensors.BF16, safetensors.F32, 0},
		{`, "dtype": "float16"`, safetensors.F16, safetensors.F32, 1},
		{`, "dtype": "float32"`, safetensors.F32, safetensors.BF16, 2},
		{``, safetensors.F32, safetensors.BF16, 2},
		{``, safetensors.F16, safetensors.F32, 1},
		{``, safetensors.BF16, safetensors.F32, 0},
	} {
		src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
			{bias, safetensors.F32, 0.1, []int64{128}}, {head, tc.dtype, 0.1, []int64{256, 128}}, {matrix, tc.dtype, 0.1, []int64{256, 128}},
		}}, `{"model_type": "llama", "hidden_size": 128`+tc.declared+`}`))
		plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8},
			Client: "transformers"})
		if err != nil {
			t.Errorf("%s in %s: %v", tc.declared, tc.dtype, err)
			continue
		}
		got := map[string]safetensors.Dtype{}
		for _, d := range plan.decisions {
			got[d.Name] = d.stored[0].Dtype
		}
		note := fmt.Sprintf("%d unquantized weights of a model in", tc.rounded)
		if noted := strings.Contains(strings.Join(plan.Notes, ""), note); got[bias] != tc.bias || got[head] != safetensors.BF16 ||
			noted != (tc.rounded > 0) {
			t.Errorf("%s in %s: dtypes %v, notes %q", tc.declared, tc.dtype, got, plan.Notes)
		}
	}
}
