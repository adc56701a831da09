package convert

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestKeepCache: a source of which only the KV cache is quantized keeps its FP8 scales, by the names of the convention, with the
// configuration that declares them. What the result cannot have is left out, with a note.
func TestKeepCache(t *testing.T) {
	const ct = `"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": `
	const mo = `"quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": `
	const fp8 = `{"num_bits": 8, "type": "float", "strategy": "tensor"}`
	for _, tc := range []struct {
		config, to string
		shape      []int64 // of the scales; nil: there are none
		note       string  // "": they are kept
	}{
		{ct + fp8, "compressed-tensors", []int64{1}, ""},
		{ct + fp8, "modelopt", []int64{1}, ""},
		{mo + `"FP8"`, "compressed-tensors", []int64{}, ""},
		{ct + fp8, "mlx", []int64{1}, "k_scale: convention mlx stores no scales of a KV cache"},
		{ct + `{"num_bits": 8, "type": "int"}`, "modelopt", []int64{1}, "are dropped, the first model.layers.0.self_attn." +
			"k_scale: the KV cache is in type int, 8 bits"},
		{ct + `7`, "modelopt", []int64{1}, "the KV cache is in 7, and only FP8 is written"},
		{mo + `"NVFP4"`, "modelopt", []int64{}, `the KV cache is in "NVFP4", and only FP8 is written`},
		{ct + fp8, "modelopt", nil, "declares a KV cache in FP8 and has no scales of it"},
		{ct + fp8, "modelopt", []int64{0}, "k_scale: it has shape [0], and only one scale for a layer is written"},
		{ct + fp8, "modelopt", []int64{8}, "the first model.layers.1.self_attn.k_scale: it has shape [8], and only one"},
	} {
		name := fmt.Sprintf("%s to %s, shape %v", tc.config, tc.to, tc.shape)
		tensors := square()
		for i := range 4 {
			shape := tc.shape
			if i == 0 && slices.Equal(shape, []int64{8}) {
				shape = []int64{1} // in one layer alone
			}
			for _, of := range []string{"k", "v"} {
				if tc.shape != nil {
					tensors["model.safetensors"] = append(tensors["model.safetensors"],
						made{fmt.Sprintf("model.layers.%d.self_attn.%s_scale", i, of), safetensors.F32, 0.5, shape})
				}
			}
		}
		config := strings.Replace(madeConfig, "{", `{"quantization_config": {`+tc.config+"},", 1)
		src := openModel(t, writeModel(t, tensors, config))
		plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Convention: tc.to})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		has := func(text string) bool {
			return slices.ContainsFunc(plan.Notes, func(n string) bool { return strings.Contains(n, text) })
		}
		if !has(tc.note) || tc.note == "" && has("scales of") {
			t.Errorf("%s: notes %q, want %q", name, plan.Notes, tc.note)
		}
		dst := filepath.Join(t.TempDir(), "dst")
		if _, err := plan.Run(context.Background(), dst, RunOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := openModel(t, dst)
		scales := 0
		for _, w := range m.Weights {
			if isCacheScale(w) {
				scales++
			}
		}
		want := map[bool]int{true: 8}[tc.note == ""]
		if scales != want || (m.Cache() == checkpoint.FP8Cache) != (want > 0) || len(m.Problems) > 0 {
			t.Errorf("%s: the result has %d scales of the KV cache, want %d, and declares %q; %v", name, scales, want, m.Cache(),
				m.Problems)
		}
		if r, err := verify.Compare(t.Context(), src.Source, m.Source, verify.Options{}); err != nil || len(r.Problems) > 0 {
			t.Errorf("%s: verify: %v, %v", name, err, r.Problems)
		}
	}
}
