package llamacpp

import (
	"strings"
	"testing"
)

// asDeepSeek has the members of config.json that make config1B a small DeepSeek-V3.
const asDeepSeek = `"architectures": ["DeepseekV3ForCausalLM"], "rms_norm_eps": 1e-6, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "n_shared_experts": 1,
	"n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "first_k_dense_replace": 1, "num_hidden_layers": 3, "num_nextn_predict_layers": 1,
	"q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16`

// TestLatent: DeepSeek-V3 in the keys and names of package gguf (constants.py 0.19.0).
func TestLatent(t *testing.T) {
	const yarn = `, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "mscale": 0.5, "mscale_all_dim": 0.5}`
	m := describe(t, map[string]string{"config.json": with(t, "{"+asDeepSeek+yarn+"}")})
	expect(t, pairs(t, m), map[string]any{
		"general.architecture": "deepseek2", "deepseek2.attention.head_count_kv": uint32(32), "deepseek2.attention.key_length": uint32(32), "deepseek2.attention.value_length": uint32(16),
		"deepseek2.rope.dimension_count": uint32(8), "deepseek2.leading_dense_block_count": uint32(1), "deepseek2.attention.q_lora_rank": uint32(64), "deepseek2.attention.kv_lora_rank": uint32(32),
		"deepseek2.expert_count": uint32(4), "deepseek2.expert_used_count": uint32(2), "deepseek2.expert_shared_count": uint32(1), "deepseek2.expert_feed_forward_length": uint32(96),
		"deepseek2.expert_weights_scale": float32(2.5), "deepseek2.expert_weights_norm": true, "deepseek2.expert_gating_func": uint32(2),
		"deepseek2.expert_group_count": uint32(2), "deepseek2.expert_group_used_count": uint32(1), "deepseek2.rope.scaling.yarn_log_multiplier": float32(0.05),
	})
	for name, want := range map[string]Place{
		"model.layers.2.self_attn.q_a_proj.weight":           {Name: "blk.2.attn_q_a.weight", Unscaled: true},
		"model.layers.2.self_attn.kv_b_proj.weight":          {Name: "blk.2.attn_kv_b.weight", Unscaled: true},
		"model.layers.2.self_attn.o_proj.weight":             {Name: "blk.2.attn_output.weight"},
		"model.layers.2.self_attn.kv_a_layernorm.weight":     {Name: "blk.2.attn_kv_a_norm.weight"},
		"model.layers.2.mlp.gate.weight":                     {Name: "blk.2.ffn_gate_inp.weight", F32: true},
		"model.layers.2.mlp.gate.e_score_correction_bias":    {Name: "blk.2.exp_probs_b.bias", F32: true},
		"model.layers.2.mlp.experts.3.up_proj.weight":        {Name: "blk.2.ffn_up_exps.weight", Experts: 4, Expert: 3},
		"model.layers.2.mlp.shared_experts.down_proj.weight": {Name: "blk.2.ffn_down_shexp.weight"},
		"model.layers.3.eh_proj.weight":                      {}, // predicts further tokens
		"model.layers.3.mlp.experts.3.up_proj.weight":        {},
	} {
		if p, err := m.Place(name, []int64{32, 64}); err != nil || p != want {
			t.Errorf("%s goes to %+v (%v), want %+v", name, p, err, want)
		}
	}
	for members, want := range map[string]string{
		strings.Replace(yarn, `"mscale": 0.5`, `"mscale": 1`, 1):                                  "mscale is 1 and mscale_all_dim 0.5",
		`, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64}`: "mscale is 0 and mscale_all_dim 0",
		`, "rope_scaling": null, "rms_norm_eps": 1e-5`:                                            "rms_norm_eps is 0.00001, and llama.cpp runs deepseek2 with 1e-06",
		`, "rope_scaling": null, "v_head_dim": 0`:                                                 "v_head_dim is 0",
	} {
		if _, err := Describe(open(t, map[string]string{"config.json": with(t, "{"+asDeepSeek+members+"}")})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: says %v, want %q in it", members, err, want)
		}
	}
}
