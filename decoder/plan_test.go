package decoder

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/family"
)

// publishedConfigs are configurations of published models, shortened: gpt-oss has fewer layers, and Phi-3
// is narrower.
var publishedConfigs = map[string]string{
	"Llama-3.2-1B": `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 128000,
		"eos_token_id": [128001, 128008], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
		"intermediate_size": 8192,
		"max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
		"pretraining_tp": 1,
		"rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
		"original_max_position_embeddings": 8192, "rope_type": "llama3"},
		"rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256}`,
	"Mistral-7B-v0.1": `{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096,
		"intermediate_size": 14336,
		"max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
		"rope_theta": 10000.0,
		"sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 32000}`,
	"Qwen2.5-0.5B": `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 896,
		"intermediate_size": 4864,
		"max_position_embeddings": 32768, "max_window_layers": 21, "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
		"rms_norm_eps": 1e-06,
		"rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "use_mrope": false, "use_sliding_window": false,
		"vocab_size": 151936}`,
	"Qwen3-30B-A3B": `{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1,
		"head_dim": 128, "hidden_act": "silu",
		"hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
		"moe_intermediate_size": 768,
		"norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
		"num_key_value_heads": 4,
		"rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
		"use_sliding_window": false, "vocab_size": 151936}`,
	"gemma-2-9b": `{"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attention_bias": false, "attn_logit_softcapping": 50.0,
		"cache_implementation": "hybrid",
		"final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
		"hidden_size": 3584, "intermediate_size": 14336,
		"max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
		"query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
		"rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096, "vocab_size": 256000}`,
	"gemma-3-4b": `{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "image_token_index": 262144,
		"mm_tokens_per_image": 256,
		"text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
		"rope_scaling": {"factor": 8.0, "rope_type": "linear"},
		"sliding_window": 1024, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072, "vocab_size": 262208},
		"vision_config": {"hidden_size": 1152}}`,
	"Phi-3-mini-128k": `{"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": false, "hidden_act": "silu",
		"hidden_size": 8, "intermediate_size": 8192,
		"max_position_embeddings": 131072, "num_attention_heads": 2, "num_hidden_layers": 32, "num_key_value_heads": 2,
		"original_max_position_embeddings": 4096,
		"rms_norm_eps": 1e-05, "rope_scaling": {"long_factor": [2, 4], "short_factor": [1, 1.5], "type": "longrope"}, "rope_theta": 10000.0,
		"sliding_window": 262144,
		"tie_word_embeddings": false, "vocab_size": 32064}`,
	"Olmo-3-7B": `{"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "attention_bias": false, "hidden_act": "silu",
		"hidden_size": 4096, "intermediate_size": 11008,
		"max_position_embeddings": 65536, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
		"rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
		"original_max_position_embeddings": 8192, "rope_type": "yarn"},
		"rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 100278}`,
	"DeepSeek-V3": `{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "attention_bias": false,
		"aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 3,
		"hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
		"moe_intermediate_size": 2048, "moe_layer_freq": 1,
		"n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
		"num_experts_per_tok": 8, "num_hidden_layers": 61,
		"num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
		"rms_norm_eps": 1e-06,
		"rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
		"original_max_position_embeddings": 4096, "type": "yarn"},
		"rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false,
		"topk_group": 4, "topk_method": "noaux_tc",
		"v_head_dim": 128, "vocab_size": 129280}`,
	"gpt-oss-20b": `{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4,
		"head_dim": 64, "hidden_act": "silu",
		"hidden_size": 2880, "initial_context_length": 4096, "intermediate_size": 2880,
		"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
		"max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 4, "num_key_value_heads": 8,
		"num_local_experts": 32,
		"rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
		"rope_type": "yarn", "truncate": false},
		"rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false, "vocab_size": 201088}`,
}

// TestPlans compares the plans of published configurations with what the models compute. A wanted line that
// begins with two spaces continues the line before it.
func TestPlans(t *testing.T) {
	for name, want := range map[string]string{
		"Llama-3.2-1B": `llama: 16 layers of width 2048, 128256 tokens, 131072 positions, tied head
layers 0–15: attention of 32 heads of 64, 8 of K and V, scale 0.125, rope θ 500000 llama3; MLP 8192 silu
`,
		"Mistral-7B-v0.1": `mistral: 32 layers of width 4096, 32000 tokens, 32768 positions, separate head
layers 0–31: attention of 32 heads of 128, 8 of K and V, scale 0.0883883, window 4096, rope θ 10000; MLP 14336 silu
`,
		"Qwen2.5-0.5B": `qwen2: 24 layers of width 896, 151936 tokens, 32768 positions, tied head
layers 0–23: attention of 14 heads of 64, 2 of K and V, scale 0.125, biases of Q, K and V, rope θ 1e+06; MLP 4864 silu
`,
		"Qwen3-30B-A3B": `qwen3_moe: 48 layers of width 2048, 151936 tokens, 40960 positions, separate head
layers 0–47: attention of 32 heads of 128, 4 of K and V, scale 0.0883883, Q and K normalized by head, rope θ 1e+06;
  8 of 128 experts by softmax, normalized, MLP 768 silu
`,
		"gemma-2-9b": `gemma2: 42 layers of width 3584, 256000 tokens, 8192 positions, tied head, embedding ×59.8665, softcap of logits 30
layers 0 to 40, every 2: attention of 16 heads of 256, 8 of K and V, scale 0.0625, window 4096, softcap 50, rope θ 10000,
  norms before and after; MLP 14336 gelu, norms before and after
layers 1 to 41, every 2: attention of 16 heads of 256, 8 of K and V, scale 0.0625, softcap 50, rope θ 10000, norms before and after;
  MLP 14336 gelu, norms before and after
`,
		"gemma-3-4b": `gemma3: 34 layers of width 2560, 262208 tokens, 131072 positions, tied head, embedding ×50.5964
layers 0–4, 6–10, 12–16, 18–22, 24–28, 30–33: attention of 8 heads of 256, 4 of K and V, scale 0.0625, window 1024,
  Q and K normalized by head, rope θ 10000, norms before and after; MLP 10240 gelu, norms before and after
layers 5 to 29, every 6: attention of 8 heads of 256, 4 of K and V, scale 0.0625, Q and K normalized by head, rope θ 1e+06 linear,
  norms before and after; MLP 10240 gelu, norms before and after
`,
		"Phi-3-mini-128k": `phi3: 32 layers of width 8, 32064 tokens, 131072 positions, separate head
layers 0–31: attention of 2 heads of 4, scale 0.5, window 262144, rope θ 10000 longrope; MLP 8192 silu
`,
		"Olmo-3-7B": `olmo3: 32 layers of width 4096, 100278 tokens, 65536 positions, separate head
layers 0–2, 4–6, 8–10, 12–14, 16–18, 20–22, 24–26, 28–30: attention of 32 heads of 128, scale 0.0883883, window 4096,
  Q and K normalized by token, rope θ 500000, norm after; MLP 11008 silu, norm after
layers 3 to 31, every 4: attention of 32 heads of 128, scale 0.0883883, Q and K normalized by token, rope θ 500000 yarn, norm after;
  MLP 11008 silu, norm after
`,
		"gpt-oss-20b": `gpt-oss: 4 layers of width 2880, 201088 tokens, 131072 positions, separate head
layers 0 to 2, every 2: attention of 64 heads of 64, 8 of K and V, scale 0.125, window 128, sinks, biases, rope θ 150000 yarn;
  4 of 32 experts by softmax of chosen, MLP 2880 quick silu within ±7, biases
layers 1 to 3, every 2: attention of 64 heads of 64, 8 of K and V, scale 0.125, sinks, biases, rope θ 150000 yarn;
  4 of 32 experts by softmax of chosen, MLP 2880 quick silu within ±7, biases
`,
		"DeepSeek-V3": `deepseek-v3: 61 layers of width 7168, 129280 tokens, 163840 positions, separate head
layers 0–2: attention of 128 heads of 192, latent K and V of 512, latent Q of 1536, heads of V of 128, scale 0.135234,
  rope θ 10000 yarn on 64 elements interleaved; MLP 18432 silu
layers 3–60: attention of 128 heads of 192, latent K and V of 512, latent Q of 1536, heads of V of 128, scale 0.135234,
  rope θ 10000 yarn on 64 elements interleaved; 8 of 256 experts by sigmoid from 4 of 8 groups, normalized, × 2.5, shared expert 2048,
  MLP 2048 silu
`,
	} {
		want = strings.ReplaceAll(want, "\n  ", " ")
		if got := planFor(t, publishedConfigs[name]).String(); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

// TestUnrotatedLayers checks which layers of SmolLM3 have rotary embeddings if the configuration does not
// say so: all but each fourth, as in transformers.
func TestUnrotatedLayers(t *testing.T) {
	p := planFor(t, `{"model_type": "smollm3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 9, `+
		`"num_attention_heads": 2, "num_key_value_heads": 2}`)
	if text := p.String(); !strings.Contains(text, "layers 3 to 7, every 4: ") || !strings.Contains(text, "layers 0–2, 4–6, 8: ") {
		t.Errorf("got\n%s", text)
	}
}

// TestLayerRules checks which layers have experts or a window where the configuration has no list of them.
func TestLayerRules(t *testing.T) {
	const experts = `"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24`
	for rule, want := range map[string][]string{
		`"model_type": "qwen3_moe", "decoder_sparse_step": 2, ` + experts: {
			"layers 0 to 4, every 2: attention", "layers 1 to 5, every 2: attention of 2 heads of 32, scale 0.176777, Q and K normalized by " +
				"head, rope θ 10000; 2 of 4 experts"},
		`"model_type": "qwen3_moe", "use_sliding_window": true, "sliding_window": 8, ` +
			experts: {"layers 0–5: attention of 2 heads of 32, scale 0.176777, window 8"},
		`"model_type": "qwen3_moe", "use_sliding_window": false, "sliding_window": 8, ` +
			experts: {"layers 0–5: attention of 2 heads of 32, scale 0.176777, Q"},
		`"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 4`: {
			"layers 0–3: ", "layers 4–5: attention of 2 heads of 32, scale 0.176777, window 8"},
		`"model_type": "gemma3_text", "_sliding_window_pattern": 3, "sliding_window": 8`: {
			"layers 0–1, 3–4: ", "layers 2 to 5, every 3: "},
		`"model_type": "deepseek_v3", "n_routed_experts": 8, "n_shared_experts": 3, "num_experts_per_tok": 3, "moe_intermediate_size": 24`: {
			"layers 3–5: ", "shared expert 72, MLP 24 "},
		`"model_type": "olmo3"`: {"layers 0–2, 4–5: attention of 2 heads of 32, scale 0.176777, window 4096", "layer 3: "},
	} {
		text := planFor(t, `{"vocab_size": 48, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2, `+
			`"num_key_value_heads": 2, "head_dim": 32, `+rule+"}").String()
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: got\n%swant %q", rule, text, part)
			}
		}
	}
}

// TestParameters compares numbers of parameters with those of published models.
func TestParameters(t *testing.T) {
	for name, want := range map[string]int64{"Llama-3.2-1B": 1235814400, "Mistral-7B-v0.1": 7241732096, "Qwen2.5-0.5B": 494032768,
		"Qwen3-30B-A3B": 30532122624, "DeepSeek-V3": 671026419200} {
		if got := planFor(t, publishedConfigs[name]).Parameters(); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}

// TestVastPlans checks that configurations of absurd sizes have plans of moderate size, whose numbers of
// parameters do not overflow.
func TestVastPlans(t *testing.T) {
	vast := planFor(t, `{"model_type": "qwen3_moe", "vocab_size": 48, "hidden_size": 1048576, "intermediate_size": 1,
		"num_hidden_layers": 65536, "num_attention_heads": 1, "num_key_value_heads": 1,
		"head_dim": 1048576, "num_experts": 65536, "num_experts_per_tok": 1, "moe_intermediate_size": 1048576,
		"rope_scaling": {"rope_type": "linear", "factor": 2}}`)
	if n := vast.Parameters(); n != math.MaxInt64 {
		t.Errorf("%d parameters, want the largest number", n)
	}
	if vast.Layers[0].Attention.Rope != vast.Layers[65535].Attention.Rope {
		t.Error("every layer has its own rotary embedding")
	}
}

// TestNull checks that a key whose value is null has no default.
func TestNull(t *testing.T) {
	gemma := planFor(t, strings.Replace(publishedConfigs["gemma-2-9b"], `"final_logit_softcapping": 30.0`, `"final_logit_softcapping": null`,
		1))
	absent := planFor(t, strings.Replace(publishedConfigs["gemma-2-9b"], `"final_logit_softcapping": 30.0,`, "", 1))
	if gemma.Softcap != 0 || absent.Softcap != 30 {
		t.Errorf("softcap %g for null and %g without the key, want 0 and 30", gemma.Softcap, absent.Softcap)
	}
}

func planFor(t *testing.T, configuration string) *Plan {
	t.Helper()
	f, s, err := family.Read([]byte(configuration))
	if err != nil {
		t.Fatal(err)
	}
	p, err := compile(f, s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRopePlans compares divisors and magnitudes with the formulas of transformers' modeling_rope_utils.py,
// at the wavelengths of some pairs. Logits are compared in interop.
func TestRopePlans(t *testing.T) {
	llama := planFor(t, publishedConfigs["Llama-3.2-1B"]).Layers[0].Attention.Rope
	for pair, want := range map[int]float64{0: 1, 14: 1, 16: 3.2923, 17: 9.6667, 18: 32, 31: 32} {
		if got := llama.Divisors[pair]; math.Abs(got-want) > 1e-3*want {
			t.Errorf("llama3: divisor %d is %.5g, want %.5g", pair, got, want)
		}
	}
	phi := planFor(t, publishedConfigs["Phi-3-mini-128k"]).Layers[0].Attention.Rope
	if math.Abs(phi.Magnitude-math.Sqrt(1+math.Log(32)/math.Log(4096))) > 1e-12 || phi.Short != 4096 || phi.Long[1] != 4 ||
		phi.Divisors[1] != 1.5 {
		t.Errorf("longrope: %+v", phi)
	}
	olmo := planFor(t, publishedConfigs["Olmo-3-7B"])
	if full, sliding := olmo.Layers[3].Attention.Rope, olmo.Layers[2].Attention.Rope; full.Magnitude != 1.2079441541679836 ||
		sliding.Magnitude != 1 || len(sliding.Divisors) != 0 {
		t.Errorf("OLMo 3: full attention %+v, with a window %+v", full, sliding)
	}
	oss := planFor(t, publishedConfigs["gpt-oss-20b"]).Layers[1].Attention.Rope
	if math.Abs(oss.Magnitude-(0.1*math.Log(32)+1)) > 1e-12 || oss.Divisors[0] != 1 || math.Abs(oss.Divisors[31]-32) > 1e-9 ||
		!(oss.Divisors[12] > 1.1 && oss.Divisors[12] < 31) {
		t.Errorf("yarn: %+v", oss)
	}
}

// TestLongRope checks which key gives the original length and the magnitude of LongRoPE.
func TestLongRope(t *testing.T) {
	const positions = 1024
	for name, c := range map[string]struct {
		settings  ropeSettings
		short     int
		magnitude float64
	}{
		"lengths":          {ropeSettings{family.Rope{OriginalLength: 256}}, 256, math.Sqrt(1 + math.Log(4)/math.Log(256))},
		"factor":           {ropeSettings{family.Rope{OriginalLength: 256, Factor: 8}}, 256, math.Sqrt(1 + math.Log(8)/math.Log(256))},
		"attention factor": {ropeSettings{family.Rope{OriginalLength: 256, Factor: 4, AttentionFactor: 1.5}}, 256, 1.5},
		"no length":        {ropeSettings{}, positions, 1},
		"shorter":          {ropeSettings{family.Rope{OriginalLength: 256, Factor: 0.5}}, 256, 1},
	} {
		r := c.settings
		r.Type, r.Theta, r.ShortFactor, r.LongFactor = "longrope", 1e4, []float64{1, 2}, []float64{3, 4}
		p, err := r.plan(4, positions)
		if err != nil || p.Short != c.short || math.Abs(p.Magnitude-c.magnitude) > 1e-12 || p.Divisors[1] != 2 || p.Long[1] != 4 {
			t.Errorf("%s: got %+v (%v), want %d positions and magnitude %g", name, p, err, c.short, c.magnitude)
		}
	}
}

// TestYarnRange checks the pairs between which YaRN interpolates for DeepSeek-V3: 10.47 and 22.51 by the
// formula, which are truncated to 10 and 23.
func TestYarnRange(t *testing.T) {
	d := planFor(t, publishedConfigs["DeepSeek-V3"]).Layers[0].Attention.Rope.Divisors
	for pair, want := range map[int]float64{0: 1, 10: 1, 11: 1 / (1.0/13/40 + 12.0/13), 22: 1 / (12.0/13/40 + 1.0/13), 23: 40, 31: 40} {
		if math.Abs(d[pair]-want) > 1e-9*want {
			t.Errorf("divisor %d is %.6g, want %.6g", pair, d[pair], want)
		}
	}
}

// TestYarnBounds checks the bounds of YaRN's range: 32 turns and 1 turn if the configuration has no others, and
// at most one less than the rotated elements. By the formula they are 1.20 and 7.22, so 1 and 8 without that limit.
func TestYarnBounds(t *testing.T) {
	r := ropeSettings{family.Rope{Type: "yarn", Theta: 10, Factor: 4, OriginalLength: 400}}
	given := r
	given.BetaFast, given.BetaSlow = 32, 1
	for _, s := range []ropeSettings{r, given} {
		p, err := s.plan(8, 1600)
		if err != nil {
			t.Fatal(err)
		}
		for pair, want := range []float64{1, 1, 1 / (1.0/6/4 + 5.0/6), 1 / (2.0/6/4 + 4.0/6)} {
			if math.Abs(p.Divisors[pair]-want) > 1e-12 {
				t.Errorf("betas %g and %g: divisor %d is %.6g, want %.6g", s.BetaFast, s.BetaSlow, pair, p.Divisors[pair], want)
			}
		}
	}
}

// TestYarnSettings checks whether the range of YaRN is truncated, and which settings give the magnitude of
// cosines and sines and the scale of scores: m(s) is 0.1·s·ln(4) + 1.
func TestYarnSettings(t *testing.T) {
	m := func(s float64) float64 { return 0.1*s*math.Ln2*2 + 1 }
	yes, no := true, false
	for name, c := range map[string]struct {
		change           func(r *ropeSettings)
		third            float64 // divisor of pair 2
		magnitude, scale float64
	}{
		"default":        {func(*ropeSettings) {}, 8.0 / 7, m(1), 1},
		"truncated":      {func(r *ropeSettings) { r.Truncate = &yes }, 8.0 / 7, m(1), 1},
		"not truncated":  {func(r *ropeSettings) { r.Truncate = &no }, 1.1160888749944582, m(1), 1},
		"mscale":         {func(r *ropeSettings) { r.MScale = 0.5 }, 8.0 / 7, m(1), 1},
		"mscale_all_dim": {func(r *ropeSettings) { r.MScaleAllDim = 0.5 }, 8.0 / 7, m(1), m(0.5) * m(0.5)},
		"both":           {func(r *ropeSettings) { r.MScale, r.MScaleAllDim = 0.75, 0.5 }, 8.0 / 7, m(0.75) / m(0.5), m(0.5) * m(0.5)},
		"attention_factor": {func(r *ropeSettings) { r.AttentionFactor, r.MScale, r.MScaleAllDim = 1.5, 0.75, 0.5 }, 8.0 / 7, 1.5,
			m(0.5) * m(0.5)},
	} {
		r := ropeSettings{family.Rope{Type: "yarn", Theta: 10, Factor: 4, OriginalLength: 400}}
		c.change(&r)
		p, err := r.plan(8, 1600)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(p.Divisors[2]-c.third) > 1e-12 || math.Abs(p.Magnitude-c.magnitude) > 1e-12 || math.Abs(p.scale-c.scale) > 1e-12 {
			t.Errorf("%s: divisor %.9g, magnitude %.9g, scale %.9g, want %.9g, %.9g, %.9g", name, p.Divisors[2], p.Magnitude, p.scale, c.third,
				c.magnitude, c.scale)
		}
	}
}

// TestPlanErrors checks the errors for configurations that cannot be computed.
func TestPlanErrors(t *testing.T) {
	for name, c := range map[string]struct{ from, old, new, want string }{
		"layer types": {"gpt-oss-20b", `"sliding_attention", "full`, `"chunked_attention", "full`,
			`layer_types: "chunked_attention" is not supported`},
		"few types": {"gpt-oss-20b", `"sliding_attention", "full_attention", "sl`, `"sl`,
			"layer_types has 2 layers, want num_hidden_layers, 4"},
		"no window": {"gpt-oss-20b", `"sliding_window": 128`, `"sliding_window": 0`,
			"layer 0 has a sliding window, but sliding_window is missing or below 1"},
		"experts":      {"gpt-oss-20b", `"num_experts_per_tok": 4`, `"num_experts_per_tok": 40`, "num_experts_per_tok is 40, want 1 to 32"},
		"limit":        {"gpt-oss-20b", `"swiglu_limit": 7.0`, `"swiglu_limit": 8`, "swiglu_limit is 8: only 7 is supported for gpt-oss"},
		"no experts":   {"Qwen3-30B-A3B", `"num_experts": 128`, `"num_experts": 0`, "the number of experts is 0"},
		"expert width": {"Qwen3-30B-A3B", `"moe_intermediate_size": 768`, `"moe_intermediate_size": 0`, "moe_intermediate_size is 0"},
		"factors":      {"Phi-3-mini-128k", `[2, 4]`, `[2]`, "rope_scaling: longrope has 2 short and 1 long factors, want 2 of each"},
		"no factor":    {"Phi-3-mini-128k", `[1, 1.5]`, `[1, 0]`, "rope_scaling: longrope has a factor of 0, want positive numbers"},
		"length": {"Phi-3-mini-128k", `"original_max_position_embeddings": 4096`, `"original_max_position_embeddings": -4096`,
			"original_max_position_embeddings of -4096, want 2 to"},
		"rope":       {"Llama-3.2-1B", `"rope_type": "llama3"`, `"rope_type": "dynamic"`, `rope_scaling: rope_type "dynamic" is not supported`},
		"rope order": {"Llama-3.2-1B", `"low_freq_factor": 1.0`, `"low_freq_factor": 5`, "low_freq_factor below high_freq_factor"},
		"partial": {"Llama-3.2-1B", `"head_dim": 64`, `"head_dim": 64, "partial_rotary_factor": 0.01`,
			"0 of 64 elements of a head are rotated"},
		"activation": {"gemma-2-9b", `"hidden_activation": "gelu_pytorch_tanh"`, `"hidden_activation": "gelu"`,
			`hidden_activation is "gelu": only "gelu_pytorch_tanh" is supported for gemma2`},
		"class": {"gemma-2-9b", "Gemma2ForCausalLM", "Gemma2ForSequenceClassification",
			"architecture Gemma2ForSequenceClassification is not supported"},
		"latent":       {"DeepSeek-V3", `"kv_lora_rank": 512`, `"kv_lora_rank": 0`, "kv_lora_rank is 0, want 1 to"},
		"wide values":  {"DeepSeek-V3", `"v_head_dim": 128`, `"v_head_dim": 256`, "v_head_dim is 256: only up to 192"},
		"groups":       {"DeepSeek-V3", `"n_group": 8`, `"n_group": 512`, "n_group is 512, want a divisor of the number of experts, 256"},
		"odd groups":   {"DeepSeek-V3", `"n_group": 8`, `"n_group": 7`, "n_group is 7, want a divisor"},
		"minus groups": {"DeepSeek-V3", `"n_group": 8`, `"n_group": -8`, "n_group is -8, want a divisor"},
		"no group":     {"DeepSeek-V3", `"topk_group": 4`, `"topk_group": 0`, "topk_group is 0, want 1 to n_group, 8"},
		"more groups":  {"DeepSeek-V3", `"topk_group": 4`, `"topk_group": 9`, "topk_group is 9, want 1 to n_group, 8"},
		"routing":      {"DeepSeek-V3", `"noaux_tc"`, `"greedy"`, `topk_method is "greedy": only "noaux_tc" is supported for deepseek-v3`},
		"key": {"gemma-3-4b", `"sliding_window": 1024`, `"sliding_window": 1024, "altup_num_inputs": 4`,
			`the key "altup_num_inputs", with the value 4, is not known for gemma3`},
	} {
		configuration := strings.Replace(publishedConfigs[c.from], c.old, c.new, 1)
		if configuration == publishedConfigs[c.from] {
			t.Fatalf("%s: nothing was replaced", name)
		}
		f, s, err := family.Read([]byte(configuration))
		if err == nil {
			_, err = compile(f, s)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if _, _, err := family.Read([]byte(`{"model_type": "gpt2"}`)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("unknown family: got %v", err)
	}
}
