package llamacpp

import (
	"encoding/json"
	"fmt"

	"github.com/microscale-go/microscale/gguf"
)

// The names and keys of DeepSeek-V3. Attention is written as one head of keys and values for each of queries, with the
// matrix of both (attn_kv_b) as in the checkpoint.
var (
	deepSeekModules = [][2]string{
		{"self_attn.q_a_proj", "attn_q_a"}, {"self_attn.q_a_layernorm", "attn_q_a_norm"}, {"self_attn.q_b_proj", "attn_q_b"},
		{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"}, {"self_attn.kv_a_layernorm", "attn_kv_a_norm"}, {"self_attn.kv_b_proj", "attn_kv_b"},
	}
	deepSeekUnscaled = []string{"attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_kv_b"}

	deepSeekTensors = [][2]string{{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"}}
	deepSeekExperts = experts{
		module: "mlp.experts",
		parts:  qwenParts,
		beside: [][2]string{
			{"mlp.gate", router}, {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
			{"mlp.shared_experts.down_proj", "ffn_down_shexp"}, {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
		},
		routed: true,
	}
	deepSeekKeys = []setting{
		{"leading_dense_block_count", "first_k_dense_replace", true}, {"attention.q_lora_rank", "q_lora_rank", true}, {"attention.kv_lora_rank", "kv_lora_rank", true},
		{"expert_shared_count", "n_shared_experts", true}, {"expert_weights_scale", "routed_scaling_factor", false},
		{"expert_group_count", "n_group", true}, {"expert_group_used_count", "topk_group", true},
	}
)

// LatentEpsilon is the ε of the norms of latent vectors in transformers. llama.cpp has one for all norms.
const LatentEpsilon = 1e-6

// sigmoidGating is the value of expert_gating_func for sigmoid scores (enum llama_expert_gating_func_type).
const sigmoidGating = uint32(2)

// The metadata keys of latent attention.
const (
	logMultiplier = "rope.scaling.yarn_log_multiplier" // a tenth of mscale_all_dim
	normalizes    = "expert_weights_norm"
	gating        = "expert_gating_func"
)

// latentHeads sets the sizes of heads of latent attention.
func (c *config) latentHeads() error {
	for _, n := range []struct {
		key   string
		value int
	}{{"qk_nope_head_dim", c.PlainDim}, {"qk_rope_head_dim", c.RotatedDim}, {"v_head_dim", c.ValueDim}, {"kv_lora_rank", c.LatentRank}} {
		if n.value <= 0 || n.value > maxHeadDim {
			return fmt.Errorf("%s is %d, want 1 to %d: fetch it again", n.key, n.value, maxHeadDim)
		}
	}
	c.HeadDim, c.KeyValueHeads = c.PlainDim+c.RotatedDim, c.Heads
	return nil
}

// describeLatent adds the metadata of DeepSeek's experts and of its YaRN, which llama.cpp computes with mscale equal to
// mscale_all_dim only.
func (m *Model) describeLatent() error {
	if !m.architecture.latent {
		return nil
	}
	m.set(normalizes, m.config.Normalize)
	m.set(gating, sigmoidGating)
	r := m.config.RopeParameters
	if r.kind() != "yarn" {
		return nil
	}
	if all := value(r.MScaleAllDim, 0); all == 0 || value(r.MScale, 0) != all {
		return fmt.Errorf("rope_scaling: mscale is %g and mscale_all_dim %g, and llama.cpp runs %s with equal ones above 0", value(r.MScale, 0), all, m.architecture.name)
	}
	m.set(logMultiplier, float32(*r.MScaleAllDim/10))
	return nil
}

// completeLatent sets the members of the configuration that follow from several values.
func (a architecture) completeLatent(f *gguf.File, c map[string]any) {
	first := func(keys ...string) int {
		for _, key := range keys {
			if n := f.Count(a.name + "." + key); n > 0 {
				return n
			}
		}
		return 0
	}
	rotated := first("rope.dimension_count")
	c["qk_rope_head_dim"], c["qk_nope_head_dim"] = rotated, first("attention.key_length_mla", "attention.key_length")-rotated
	c["v_head_dim"] = first("attention.value_length_mla", "attention.value_length")
	c["num_key_value_heads"] = first("attention.head_count")
	c["head_dim"] = rotated // as in transformers
	if _, ok := c["q_lora_rank"]; !ok {
		c["q_lora_rank"] = nil
	}
	normalized, _ := f.Value(a.name + "." + normalizes).(bool)
	c["norm_topk_prob"] = normalized
	for key, missing := range map[string]any{"routed_scaling_factor": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0} {
		if c[key] == nil {
			c[key] = missing
		}
	}
	if r, ok := c["rope_scaling"].(map[string]any); ok {
		if x, ok := f.Value(a.name + "." + logMultiplier).(float32); ok {
			scale := json.Number(fmt.Sprint(10 * x))
			r["mscale"], r["mscale_all_dim"] = scale, scale
		}
	}
}
