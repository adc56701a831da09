package llamacpp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
)

// asDeepSeek has the members of config.json that make config1B a small DeepSeek-V3.
const asDeepSeek = `"architectures": ["DeepseekV3ForCausalLM"], "rms_norm_eps": 1e-6, "n_routed_experts": 4, "num_experts_per_tok": 2,
	"moe_intermediate_size": 96, "n_shared_experts": 1,
	"n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "first_k_dense_replace": 1, "num_hidden_layers": 3,
	"num_nextn_predict_layers": 1,
	"q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16`

// TestLatent: DeepSeek-V3 in the keys and names of package gguf (constants.py 0.19.0).
func TestLatent(t *testing.T) {
	const yarn = `, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "mscale": 0.5, ` +
		`"mscale_all_dim": 0.5}`
	m := describe(t, map[string]string{"config.json": with(t, "{"+asDeepSeek+yarn+"}")})
	expect(t, pairs(t, m), map[string]any{
		"general.architecture": "deepseek2", "deepseek2.attention.head_count_kv": uint32(32), "deepseek2.attention.key_length": uint32(32),
		"deepseek2.attention.value_length": uint32(16),
		"deepseek2.rope.dimension_count":   uint32(8), "deepseek2.leading_dense_block_count": uint32(1),
		"deepseek2.attention.q_lora_rank": uint32(64), "deepseek2.attention.kv_lora_rank": uint32(32),
		"deepseek2.expert_count": uint32(4), "deepseek2.expert_used_count": uint32(2), "deepseek2.expert_shared_count": uint32(1),
		"deepseek2.expert_feed_forward_length": uint32(96),
		"deepseek2.expert_weights_scale":       float32(2.5), "deepseek2.expert_weights_norm": true, "deepseek2.expert_gating_func": uint32(2),
		"deepseek2.expert_group_count": uint32(2), "deepseek2.expert_group_used_count": uint32(1),
		"deepseek2.rope.scaling.yarn_log_multiplier": float32(0.05),
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
		`, "rope_scaling": null, "rms_norm_eps": 1e-5`: "rms_norm_eps is 0.00001, and llama.cpp " +
			"runs deepseek2 with 1e-06",
		`, "rope_scaling": null, "v_head_dim": 0`: "v_head_dim is 0",
	} {
		if _, err := Describe(open(t, map[string]string{"config.json": with(t, "{"+asDeepSeek+members+"}")})); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: says %v, want %q in it", members, err, want)
		}
	}
}

// TestLatentConfiguration checks that the metadata of a DeepSeek-V3 give the members of its config.json again.
func TestLatentConfiguration(t *testing.T) {
	m := describe(t, map[string]string{"config.json": with(t, "{"+asDeepSeek+`, "rope_scaling": {"type": "yarn", "factor": 4, `+
		`"original_max_position_embeddings": 64, "mscale": 0.5, "mscale_all_dim": 0.5}}`)})
	c, err := Open(file(t, []gguf.Spec{{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 2}}}, m.Metadata...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got map[string]any
	if err := json.Unmarshal(c.Config, &got); err != nil {
		t.Fatal(err)
	}
	scaling, _ := got["rope_scaling"].(map[string]any)
	for key, want := range map[string]any{
		"model_type": "deepseek_v3", "norm_topk_prob": true, "n_routed_experts": 4.0, "num_experts_per_tok": 2.0, "n_shared_experts": 1.0,
		"n_group": 2.0, "topk_group": 1.0,
		"routed_scaling_factor": 2.5, "first_k_dense_replace": 1.0, "q_lora_rank": 64.0, "kv_lora_rank": 32.0, "qk_nope_head_dim": 24.0,
		"qk_rope_head_dim": 8.0, "v_head_dim": 16.0,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	for key, want := range map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64.0, "mscale": 0.5,
		"mscale_all_dim": 0.5} {
		if scaling[key] != want {
			t.Errorf("%s of rope_scaling is %v, want %v", key, scaling[key], want)
		}
	}
}

// TestLatentParts: the keys and values of latent attention that llama.cpp's converter divides are one matrix, with the rows
// of keys before those of values in each head, from any tile on.
func TestLatentParts(t *testing.T) {
	const heads, rank, keys, values, q80 = 3, 32, 64, 16, 8
	c, err := Open(file(t, []gguf.Spec{
		{Name: "blk.1.attn_k_b.weight", Type: gguf.F16, Shape: []int64{heads, rank, keys}}, {Name: "blk.1.attn_v_b.weight", Type: q80,
			Shape: []int64{heads, values, rank}},
		{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 2}},
	}, gguf.Pair{Key: "general.architecture", Value: "deepseek2"}, gguf.Pair{Key: "deepseek2.attention.head_count", Value: uint32(heads)},
		gguf.Pair{Key: "deepseek2.attention.head_count_kv", Value: uint32(1)},
		gguf.Pair{Key: "deepseek2.attention.key_length", Value: uint32(rank + 8)}, gguf.Pair{Key: "deepseek2.attention.key_length_mla",
			Value: uint32(keys + 8)},
		gguf.Pair{Key: "deepseek2.attention.value_length_mla", Value: uint32(values)}, gguf.Pair{Key: "deepseek2.rope.dimension_count",
			Value: uint32(8)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for key, want := range map[string]int64{"qk_nope_head_dim": keys, "qk_rope_head_dim": 8, "v_head_dim": values,
		"num_key_value_heads": heads} {
		if got := c.Integer(key); got != want {
			t.Errorf("%s is %d, want %d", key, got, want)
		}
	}
	w, ok := checkpoint.Read(c).Lookup("model.layers.1.self_attn.kv_b_proj.weight")
	if !ok || len(w.Shape) != 2 || w.Shape[0] != heads*(keys+values) || w.Shape[1] != rank {
		t.Fatalf("got %+v", w)
	}
	f, err := gguf.Open(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v := &view{file: f}
	floats := func(name string, n int64) []float32 {
		info, _ := f.Lookup(name)
		x, err := v.floats(info, 0, n)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	k, x := floats("blk.1.attn_k_b.weight", heads*rank*keys), floats("blk.1.attn_v_b.weight", heads*values*rank)
	got, err := w.ReadTile(checkpoint.Tile{From: 5, To: 200, FromCol: 3, ToCol: 30})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Rows {
		h, row := (i+5)/(keys+values), (i+5)%(keys+values)
		for j, g := range got.Row(i) {
			want := k[(h*rank+j+3)*keys+row%keys]
			if row >= keys {
				want = x[(h*values+row-keys)*rank+j+3]
			}
			if g != want && (g == g || want == want) {
				t.Fatalf("row %d, column %d: got %g, want %g", i+5, j+3, g, want)
			}
		}
	}
}
