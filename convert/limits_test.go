package convert

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// withoutLimits returns the warnings, except those about what clients cannot run of the model and about odd numbers of
// columns, which TestLimits and TestColumnsLeft check.
func withoutLimits(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool {
		return strings.Contains(w, "columns are not a multiple of") || strings.HasPrefix(w, "clients of convention mlx read no global scale") ||
			slices.ContainsFunc(client.All(), func(c client.Client) bool { return strings.HasPrefix(w, c.Name+": ") })
	})
}

// TestLimits: quantize reports what a client of the convention cannot run of the model.
func TestLimits(t *testing.T) {
	src := openModel(t, writeModel(t, mixtral(), mixtralConfig))
	ggml, err := profile.Lookup("ggml")
	if err != nil {
		t.Fatal(err)
	}
	blocksAlone, err := ggml.Quantizer(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		q          quant.Quantizer
		convention string
		want       string
	}{
		{quant.Quantizer{Format: quant.NVFP4}, "compressed-tensors",
			"transformers: model.layers.0.block_sparse_moe.experts.0.w1.weight: the client omits the global scales of experts, whose values " +
				"become too large without an error: choose mxfp4 or fp8-row (and 8 more weights)"},
		{blocksAlone, "compressed-tensors", ""}, // global scales of 1
		{quant.Quantizer{Format: quant.MXFP4}, "compressed-tensors", ""},
		{quant.Quantizer{Format: quant.NVFP4}, "modelopt", ""},
	} {
		plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: tc.q, Convention: tc.convention})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(plan.Notes, "\n")
		// The order in the shards decides which expert comes first.
		if _, rest, ok := strings.Cut(got, ".weight: "); ok {
			got = "transformers: model.layers.0.block_sparse_moe.experts.0.w1.weight: " + rest
		}
		if got != tc.want {
			t.Errorf("%s in %s: notes are %q, want %q", tc.q.Format, tc.convention, got, tc.want)
		}
	}
}

// qwen is a dense model with one layer and biases.
func qwen(t *testing.T, generation int, intermediate int64) *checkpoint.Model {
	t.Helper()
	const layer = "model.layers.0."
	tensors := []made{{"model.embed_tokens.weight", safetensors.BF16, 1, []int64{256, 128}}, {"model.norm.weight", safetensors.BF16, 1,
		[]int64{128}}}
	for name, shape := range map[string][]int64{
		"input_layernorm.weight": {128}, "post_attention_layernorm.weight": {128}, "self_attn.q_proj.weight": {128, 128},
		"self_attn.q_proj.bias": {128},
		"self_attn.k_proj.bias": {128}, "self_attn.v_proj.bias": {128},
		"self_attn.k_proj.weight": {128, 128}, "self_attn.v_proj.weight": {128, 128}, "self_attn.o_proj.weight": {128, 128},
		"mlp.gate_proj.weight": {intermediate, 128}, "mlp.up_proj.weight": {intermediate, 128}, "mlp.down_proj.weight": {128, intermediate},
	} {
		tensors = append(tensors, made{layer + name, safetensors.BF16, 0.1, shape})
	}
	if generation == 3 {
		tensors = append(tensors, made{layer + "self_attn.q_norm.weight", safetensors.BF16, 1, []int64{64}},
			made{layer + "self_attn.k_norm.weight", safetensors.BF16, 1, []int64{64}})
	}
	return openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors},
		fmt.Sprintf(`{"architectures": ["Qwen%[1]dForCausalLM"], "model_type": "qwen%[1]d", "vocab_size": 256,
		"microscale": {"vocabulary": "bytes"}, "hidden_size": 128, "intermediate_size": %[2]d, "num_hidden_layers": 1, "num_attention_heads": 2,
		"num_key_value_heads": 2, "max_position_embeddings": 64,
		"rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "tie_word_embeddings": true}`, generation, intermediate)))
}

// TestUnscaledGraph: files for an architecture in which llama.cpp ignores global scales of
// NVFP4 have none, and verify reports a file that has one.
func TestUnscaledGraph(t *testing.T) {
	client, err := client.Lookup("llamacpp")
	if err != nil {
		t.Fatal(err)
	}
	ggml, err := profile.Lookup("ggml")
	if err != nil {
		t.Fatal(err)
	}
	blocksAlone, err := ggml.Quantizer(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	const want = "llama.cpp ignores global scales of nvfp4 in qwen2, as far as is known: choose mxfp4 or q8_0, or profile ggml"
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "gguf"}
	qwen2 := qwen(t, 2, 256)
	if _, err := PlanQuantize(t.Context(), qwen2.Source, o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("quantize: error %v", err)
	}
	ct := filepath.Join(t.TempDir(), "ct")
	quantize(t, qwen2, ct, QuantizeOptions{Quantizer: o.Quantizer}, RunOptions{})
	if _, err := planRelabel(openModel(t, ct), relabeling{Convention: "gguf"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("convert: error %v", err)
	}

	// Weights with block scales alone convert in both directions.
	path, back, again := filepath.Join(t.TempDir(), "m.gguf"), filepath.Join(t.TempDir(), "back"), filepath.Join(t.TempDir(), "again.gguf")
	quantize(t, qwen2, path, QuantizeOptions{Quantizer: blocksAlone, Convention: "gguf"}, RunOptions{})
	got := openGGUF(t, path)
	if problems := client.Rejects(got); len(problems) > 0 || got.Quantized() != 7 {
		t.Errorf("with global scales of 1: %v", problems)
	}
	quantize(t, qwen2, back, QuantizeOptions{Quantizer: blocksAlone}, RunOptions{})
	relabel(t, openModel(t, back), again, relabeling{Convention: "gguf"})
	sameCodes(t, got, openGGUF(t, again))

	// A file of another program: that of Qwen3 under the name of Qwen2.
	quantize(t, qwen(t, 3, 256), path, QuantizeOptions{Quantizer: o.Quantizer, Convention: "gguf"}, RunOptions{Force: true})
	if problems := client.Rejects(openGGUF(t, path)); len(problems) > 0 {
		t.Errorf("Qwen3: %v", problems)
	}
	foreign := filepath.Join(t.TempDir(), "foreign.gguf")
	if err := os.WriteFile(foreign, bytes.ReplaceAll(readFile(t, path), []byte("qwen3"), []byte("qwen2")), 0o666); err != nil {
		t.Fatal(err)
	}
	problems := client.Rejects(openGGUF(t, foreign))
	if len(problems) != 7 || !strings.Contains(problems[0].Text, "the graph of qwen2 ignores global scales") {
		t.Errorf("a file of Qwen2 with global scales: %v", problems)
	}
}
