package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestHeadNote: a head that differs from the embedding to which the configuration ties it is noted by the run, not by the
// plan, which reads headers only, and stays in the result.
func TestHeadNote(t *testing.T) {
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"model.embed_tokens.weight", safetensors.BF16, 0.1, []int64{96, 64}}, {"lm_head.weight", safetensors.BF16, 0.1, []int64{96, 64}},
		{"model.layers.0.mlp.up_proj.weight", safetensors.BF16, 0.1, []int64{64, 64}},
	}}, `{"model_type": "made", "tie_word_embeddings": true, "torch_dtype": "bfloat16"}`))
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err != nil || len(plan.Notes) != 0 {
		t.Fatalf("%v: %+v", err, plan)
	}
	dst := filepath.Join(t.TempDir(), "out")
	result, err := plan.Run(t.Context(), dst, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if w := result.Warnings; len(w) != 1 || !strings.HasPrefix(w[0], "lm_head.weight differs from the embedding") {
		t.Errorf("warnings %q", w)
	}
	if w, ok := openModel(t, dst).Lookup("lm_head.weight"); !ok || w.Quantized() {
		t.Error("the head is lost")
	}
}

// TestUnjoinedNote: decoded single experts of a model whose experts transformers holds in one tensor are noted if they
// are not joined.
func TestUnjoinedNote(t *testing.T) {
	for modelType, want := range map[string]bool{"qwen3_vl_moe": true, "mixtral": false} {
		src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
			{"model.layers.0.mlp.experts.0.up_proj.weight", safetensors.BF16, 0.1, []int64{64, 64}},
		}}, `{"model_type": "`+modelType+`", "torch_dtype": "bfloat16"}`))
		dst := filepath.Join(t.TempDir(), "out")
		quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Convention: "modelopt"}, RunOptions{})
		plan, err := PlanDequantize(t.Context(), openModel(t, dst).Source, safetensors.BF16)
		if err != nil || strings.Contains(strings.Join(plan.Notes, ""),
			"transformers does not load model.layers.0.mlp.experts.0.up_proj.weight") != want {
			t.Errorf("%s: %v: %+v", modelType, err, plan)
		}
	}
}

// TestIgnoredCodes: quantized weights on the ignore list, whose codes a client would take for values, are noted by dequantize,
// which decodes them, and a conversion to the same convention mends the list.
func TestIgnoredCodes(t *testing.T) {
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"a.proj.weight", safetensors.BF16, 0.1, []int64{64, 64}}, {"b.proj.weight", safetensors.BF16, 0.1, []int64{64, 64}},
	}}, `{"model_type": "made", "torch_dtype": "bfloat16"}`))
	dir := filepath.Join(t.TempDir(), "out")
	quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Convention: "mxfp8"}, RunOptions{})
	config := readFile(t, filepath.Join(dir, hf.ConfigName))
	listed := bytes.Replace(config, []byte(`"ignored_layers": [`), []byte(`"ignored_layers": ["a.proj", `), 1)
	if bytes.Equal(config, listed) {
		t.Fatalf("%s", config)
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), listed, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := openModel(t, dir)
	const want = "a.proj.weight: it is quantized, but the ignore list says that it is not"
	if len(damaged.Problems) != 1 || !damaged.Problems[0].Misread || !strings.HasPrefix(damaged.Problems[0].String(), want) {
		t.Errorf("problems %v", damaged.Problems)
	}
	if plan, err := PlanDequantize(t.Context(), damaged.Source, safetensors.F32); err != nil || len(plan.Notes) != 1 ||
		!strings.Contains(plan.Notes[0], want) || plan.Count(Decode) != 2 {
		t.Errorf("%v: %+v", err, plan)
	}
	mended := filepath.Join(t.TempDir(), "mended")
	relabel(t, damaged, mended, relabeling{Convention: "mxfp8"})
	if problems := openModel(t, mended).Problems; len(problems) > 0 {
		t.Errorf("mended: %v", problems)
	}
}
