package decoder

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// ggufConfigs are small models of the classes that GGUF files can have. All have another value than the
// default where llama.cpp's graph allows one.
var ggufConfigs = map[string]string{
	"LlamaForCausalLM": `"model_type": "llama", "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true, "rope_theta": 5e5,
		"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
		"original_max_position_embeddings": 16}`,
	"MistralForCausalLM": `"model_type": "mistral", "head_dim": 32, "sliding_window": null, "rope_scaling": {"rope_type": "yarn", ` +
		`"factor": 4, "original_max_position_embeddings": 16, "beta_fast": 16}`,
	"MixtralForCausalLM": `"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2`,
	"Qwen2ForCausalLM":   `"model_type": "qwen2", "rope_scaling": {"rope_type": "linear", "factor": 2}`,
	"Qwen3ForCausalLM":   `"model_type": "qwen3", "head_dim": 32, "attention_bias": true`,
	"Qwen2MoeForCausalLM": `"model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, ` +
		`"shared_expert_intermediate_size": 64, "norm_topk_prob": false`,
	"Qwen3MoeForCausalLM": `"model_type": "qwen3_moe", "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, ` +
		`"moe_intermediate_size": 32, "norm_topk_prob": true`,
	"SmolLM3ForCausalLM": `"model_type": "smollm3", "tie_word_embeddings": false, "rope_theta": 1e6, "num_hidden_layers": 4`,
	"GraniteForCausalLM": `"model_type": "granite", "embedding_multiplier": 6, "residual_multiplier": 0.3, "attention_multiplier": 0.2, ` +
		`"logits_scaling": 4`,
	"Olmo2ForCausalLM": `"model_type": "olmo2"`,
	"Olmo3ForCausalLM": `"model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 8, "layer_types": ["sliding_attention",
		"full_attention", "full_attention", "sliding_attention"],
		"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "attention_factor": 1.2}`,
	"GptOssForCausalLM": `"model_type": "gpt_oss", "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
		"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1,
		"truncate": false}`,
	"DeepseekV3ForCausalLM": `"model_type": "deepseek_v3", "rms_norm_eps": 1e-6, "n_routed_experts": 8, "n_shared_experts": 1,
		"num_experts_per_tok": 3, "moe_intermediate_size": 32,
		"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "first_k_dense_replace": 1, "q_lora_rank": 32,
		"kv_lora_rank": 64, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8,
		"v_head_dim": 32, "num_key_value_heads": 2, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 16,
		"mscale": 1, "mscale_all_dim": 1}`,
	"Glm4ForCausalLM": `"model_type": "glm4", "head_dim": 32, "attention_bias": true, "partial_rotary_factor": 0.5`,
	"Phi3ForCausalLM": `"model_type": "phi3", "partial_rotary_factor": 0.5, "original_max_position_embeddings": 16,
		"rope_scaling": {"type": "longrope",
		"short_factor": [1.0, 1.03125, 1.0625, 1.09375, 1.125, 1.15625, 1.1875, 1.21875, 1.25, 1.28125, 1.3125, 1.34375,
		1.375, 1.40625, 1.4375, 1.46875],
		"long_factor": [1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 3.75, 4.0, 4.25, 4.5, 4.75, 5.0, 5.25]}`,
	"Gemma2ForCausalLM": `"model_type": "gemma2", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8,
		"attn_logit_softcapping": 4, "final_logit_softcapping": 3,
		"hidden_activation": "gelu_pytorch_tanh"`,
	"Gemma3ForCausalLM": `"model_type": "gemma3_text", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8,
		"num_hidden_layers": 6,
		"rope_scaling": {"rope_type": "linear", "factor": 8}, "hidden_activation": "gelu_pytorch_tanh"`,
}

// TestGGUFDirectory writes a Hugging Face directory as a GGUF file, and that as a directory: the plan of
// the model and its tensors are the same.
func TestGGUFDirectory(t *testing.T) {
	for _, f := range family.All() {
		if _, ok := ggufConfigs[f.Class]; f.GGUF != nil && !ok {
			t.Errorf("ggufConfigs has no model of %s", f.Class)
		}
	}
	for class := range ggufConfigs {
		want := openCheckpoint(t, writeGGUFModel(t, class))
		file, dir := filepath.Join(t.TempDir(), "model.gguf"), filepath.Join(t.TempDir(), "model")
		plan, err := convert.PlanQuantize(t.Context(), want, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.BF16},
			Convention: "gguf"})
		runPlan(t, plan, err, file)
		plan, err = convert.PlanDequantize(t.Context(), openCheckpoint(t, file), safetensors.F32)
		runPlan(t, plan, err, dir)
		got := openCheckpoint(t, dir)
		report, err := verify.Compare(t.Context(), want, got, verify.Options{})
		if err != nil || len(report.Tensors) < 15 {
			t.Errorf("%s: %d tensors (%v)", class, len(report.Tensors), err)
		}
		for _, p := range report.Problems {
			// GGUF has 1+w of Gemma's norms. Two roundings to F32, of values below 2, change w by 2^-23 at most.
			if !strings.HasPrefix(class, "Gemma") || !strings.HasSuffix(p.Tensor, "norm.weight") || largestError(t, want, got,
				p.Tensor) > 1.0/(1<<23) {
				t.Errorf("%s: %v", class, p)
			}
		}
		if a, b := planText(t, want), planText(t, got); a != b {
			t.Errorf("%s: got %s, want %s", class, b, a)
		}
		if !strings.Contains(string(got.Config), `"bfloat16"`) {
			t.Errorf("%s: got %s", class, got.Config)
		}
	}
}

// writeGGUFModel writes a model of ggufConfigs, of two layers unless its row says otherwise.
func writeGGUFModel(t *testing.T, class string) string {
	t.Helper()
	configuration := `{"architectures": ["` + class +
		`"], "vocab_size": 48, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 2e-5, ` + ggufConfigs[class] + "}"
	return writeFamily(t, configuration, same)
}

func openCheckpoint(t *testing.T, path string) *hf.Checkpoint {
	t.Helper()
	c, err := convert.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// largestError returns the largest difference of the elements of a tensor.
func largestError(t *testing.T, a, b *hf.Checkpoint, tensor string) (largest float64) {
	t.Helper()
	x, err := a.Floats(tensor)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Floats(tensor)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		largest = max(largest, math.Abs(float64(v)-float64(y[i])))
	}
	return largest
}

func runPlan(t *testing.T, plan *convert.Plan, err error, dst string) {
	t.Helper()
	if err == nil {
		_, err = plan.Run(t.Context(), dst, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// planText returns the plan of a checkpoint. llama.cpp makes no difference between Mistral and Llama.
func planText(t *testing.T, c *hf.Checkpoint) string {
	t.Helper()
	plan, err := ReadPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Family == "mistral" {
		plan.Family = "llama"
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
