package llamacpp

import (
	"encoding/json"
	"fmt"

	"github.com/microscale-go/microscale/gguf"
)

// sigmoidGating is the value of expert_gating_func for sigmoid scores (enum llama_expert_gating_func_type).
const sigmoidGating = uint32(2)

// The metadata keys of latent attention.
const (
	logMultiplier = "rope.scaling.yarn_log_multiplier" // a tenth of mscale_all_dim
	normalizes    = "expert_weights_norm"
	gating        = "expert_gating_func"
)

// describeLatent adds the metadata of DeepSeek's experts and of its YaRN, which llama.cpp computes with mscale equal to
// mscale_all_dim only.
func (m *Model) describeLatent() error {
	if !m.architecture.family.Latent {
		return nil
	}
	m.set(normalizes, m.config.normalizes())
	m.set(gating, sigmoidGating)
	r := m.config.rope
	if r.Type != "yarn" {
		return nil
	}
	if all := r.MScaleAllDim; all == 0 || r.MScale != all {
		return fmt.Errorf("rope_scaling: mscale is %g and mscale_all_dim %g, and llama.cpp runs %s with equal ones above 0", r.MScale, all,
			m.architecture.Name)
	}
	m.set(logMultiplier, float32(r.MScaleAllDim/10))
	return nil
}

// completeLatent sets the members of the configuration that follow from several values.
func (a architecture) completeLatent(f *gguf.File, c map[string]any) {
	first := func(keys ...string) int {
		for _, key := range keys {
			if n := f.Count(a.Name + "." + key); n > 0 {
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
	normalized, _ := f.Value(a.Name + "." + normalizes).(bool)
	c["norm_topk_prob"] = normalized
	for key, missing := range map[string]any{"routed_scaling_factor": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0} {
		if c[key] == nil {
			c[key] = missing
		}
	}
	if r, ok := c["rope_scaling"].(map[string]any); ok {
		if x, ok := f.Value(a.Name + "." + logMultiplier).(float32); ok {
			scale := json.Number(fmt.Sprint(10 * x))
			r["mscale"], r["mscale_all_dim"] = scale, scale
		}
	}
}
