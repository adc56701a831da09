package llamacpp

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
)

// Members of config.json that turn config1B into a mixture of experts.
const (
	asMixtral  = `"architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2`
	asQwen2MoE = `"architectures": ["Qwen2MoeForCausalLM"], "rope_scaling": null, "num_experts": 4, "num_experts_per_tok": 2, ` +
		`"moe_intermediate_size": 96, "shared_expert_intermediate_size": 160`
	asQwen3MoE = `"architectures": ["Qwen3MoeForCausalLM"], "rope_scaling": null, "num_experts": 4, "num_experts_per_tok": 2, ` +
		`"moe_intermediate_size": 96, "norm_topk_prob": true`
)

// TestExperts: mixtures of experts in the keys and names of package gguf (constants.py 0.19.0).
func TestExperts(t *testing.T) {
	const layer = "model.layers.3."
	for name, tc := range map[string]struct {
		members string
		keys    map[string]any
		places  map[string]Place
		absent  string
	}{
		"mixtral": {asMixtral, map[string]any{"general.architecture": "llama", "llama.expert_count": uint32(8),
			"llama.expert_used_count": uint32(2), "llama.feed_forward_length": uint32(8192), "llama.expert_feed_forward_length": nil},
			map[string]Place{
				"block_sparse_moe.gate.weight":         {Name: "blk.3.ffn_gate_inp.weight", F32: true},
				"block_sparse_moe.experts.0.w1.weight": {Name: "blk.3.ffn_gate_exps.weight", Experts: 8},
				"block_sparse_moe.experts.7.w2.weight": {Name: "blk.3.ffn_down_exps.weight", Experts: 8, Expert: 7},
				"block_sparse_moe.experts.1.w3.weight": {Name: "blk.3.ffn_up_exps.weight", Experts: 8, Expert: 1},
				"self_attn.q_proj.weight":              {Name: "blk.3.attn_q.weight", HeadDim: 64},
			}, "mlp.experts.0.gate_proj.weight"},
		"qwen2moe": {asQwen2MoE, map[string]any{"general.architecture": "qwen2moe", "qwen2moe.expert_count": uint32(4),
			"qwen2moe.expert_used_count": uint32(2), "qwen2moe.expert_feed_forward_length": uint32(96),
			"qwen2moe.expert_shared_feed_forward_length": uint32(160)}, map[string]Place{
			"mlp.gate.weight":                    {Name: "blk.3.ffn_gate_inp.weight", F32: true},
			"mlp.shared_expert_gate.weight":      {Name: "blk.3.ffn_gate_inp_shexp.weight", F32: true},
			"mlp.shared_expert.gate_proj.weight": {Name: "blk.3.ffn_gate_shexp.weight"},
			"mlp.shared_expert.up_proj.weight":   {Name: "blk.3.ffn_up_shexp.weight"},
			"mlp.shared_expert.down_proj.weight": {Name: "blk.3.ffn_down_shexp.weight"},
			"mlp.experts.2.gate_proj.weight":     {Name: "blk.3.ffn_gate_exps.weight", Experts: 4, Expert: 2},
		}, "block_sparse_moe.gate.weight"},
		"qwen3moe": {asQwen3MoE, map[string]any{"general.architecture": "qwen3moe", "qwen3moe.expert_count": uint32(4),
			"qwen3moe.expert_feed_forward_length": uint32(96), "qwen3moe.expert_shared_feed_forward_length": nil}, map[string]Place{
			"mlp.experts.3.down_proj.weight": {Name: "blk.3.ffn_down_exps.weight", Experts: 4, Expert: 3},
			"mlp.experts.0.up_proj.weight":   {Name: "blk.3.ffn_up_exps.weight", Experts: 4},
			"self_attn.q_norm.weight":        {Name: "blk.3.attn_q_norm.weight"},
		}, "mlp.shared_expert_gate.weight"},
	} {
		t.Run(name, func(t *testing.T) {
			m := describe(t, map[string]string{"config.json": with(t, "{"+tc.members+"}")})
			expect(t, pairs(t, m), tc.keys)
			for name, want := range tc.places {
				p, err := m.Place(layer+name, []int64{128, 64})
				if err != nil || p != want {
					t.Errorf("%s goes to %+v (%v), want %+v", name, p, err, want)
				}
				if back, ok := m.architecture.original(p.Name); p.Experts == 0 && (!ok || back != layer+name) {
					t.Errorf("%s comes back as %q", name, back)
				}
				if all := m.architecture.originals(p.Name, p.Stacked([]int64{128, 64})); p.Experts > 0 &&
					(len(all) != p.Experts || all[p.Expert] != layer+name) {
					t.Errorf("%s comes back in %q", name, all)
				}
			}
			if p, err := m.Place(layer+tc.absent, []int64{128, 64}); err == nil {
				t.Errorf("%s goes to %+v", tc.absent, p)
			}
		})
	}
	m := describe(t, map[string]string{"config.json": with(t, "{"+asMixtral+"}")})
	if _, err := m.Place(layer+"block_sparse_moe.experts.8.w1.weight", []int64{128, 64}); err == nil || !strings.Contains(err.Error(),
		"it belongs to expert 8, but config.json has 8 experts") {
		t.Errorf("expert 8 of 8: error %v", err)
	}
}

// TestRejectedExperts: mixtures that llama.cpp computes differently or does not support.
func TestRejectedExperts(t *testing.T) {
	for members, want := range map[string]string{
		`"num_local_experts": 8`:                              `the key "num_local_experts", with the value 8, is not known for llama`,
		asMixtral + `, "num_local_experts": 0`:                "the number of experts is 0",
		asMixtral + `, "num_local_experts": 1000`:             "the number of experts is 1000, but llama.cpp supports 1 to 512",
		asMixtral + `, "num_experts_per_tok": 9`:              "num_experts_per_tok is 9 of 8 experts",
		asQwen3MoE + `, "norm_topk_prob": false`:              "norm_topk_prob is false, and llama.cpp runs qwen3moe with true",
		asQwen2MoE + `, "norm_topk_prob": true`:               "norm_topk_prob is true, and llama.cpp runs qwen2moe with false",
		asQwen3MoE + `, "mlp_only_layers": [1]`:               "some layers have no experts",
		asQwen3MoE + `, "decoder_sparse_step": 2`:             "some layers have no experts",
		asQwen3MoE + `, "moe_intermediate_size": 0`:           "moe_intermediate_size is missing",
		asQwen2MoE + `, "shared_expert_intermediate_size": 0`: "shared_expert_intermediate_size is missing",
	} {
		if _, err := Describe(open(t, map[string]string{"config.json": with(t, "{"+members+"}")})); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%s: says %v, want %q in it", members, err, want)
		}
	}
}

// TestStackedFile: each expert of a stacked tensor is a weight of the view, with its own bytes
// and global scale.
func TestStackedFile(t *testing.T) {
	c, err := Open(file(t, []gguf.Spec{
		{Name: "blk.0.ffn_up_exps.weight", Type: gguf.NVFP4, Shape: []int64{3, 2, 64}}, {Name: "blk.0.ffn_up_exps.scale", Type: gguf.F32,
			Shape: []int64{3}},
		{Name: "blk.0.ffn_down_exps.weight", Type: gguf.F32, Shape: []int64{3, 2, 8}}, {Name: "blk.0.ffn_gate_inp_shexp.weight", Type: gguf.F32,
			Shape: []int64{64}},
	}, gguf.Pair{Key: "general.architecture", Value: "qwen2moe"}, gguf.Pair{Key: "qwen2moe.expert_count", Value: uint32(3)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := checkpoint.Read(c)
	if len(m.Weights) != 7 || len(m.Problems) > 0 {
		t.Errorf("%d weights, problems %v", len(m.Weights), m.Problems)
	}
	for name, shape := range map[string][]int64{"mlp.experts.2.up_proj": {2, 64}, "mlp.experts.1.down_proj": {2, 8},
		"mlp.shared_expert_gate": {1, 64}} {
		w, ok := m.Lookup("model.layers.0." + name + ".weight")
		if !ok || !slices.Equal(w.Shape, shape) || w.Quantized() != strings.HasSuffix(name, "up_proj") {
			t.Fatalf("%s is %+v", name, w)
		}
	}
	// Bytes count up in every tensor. The third scale is float32 of bytes 8 to 11, and the
	// values of the second expert begin at byte 64.
	w, _ := m.Lookup("model.layers.0.mlp.experts.2.up_proj.weight")
	if want := float32frombytes(8, 9, 10, 11); w.Global != want {
		t.Errorf("the global scale of expert 2 is %g, want %g", w.Global, want)
	}
	down, _ := m.Lookup("model.layers.0.mlp.experts.1.down_proj.weight")
	x, err := down.Read(0, 2)
	if err != nil || x.Data[0] != float32frombytes(64, 65, 66, 67) || x.Data[15] != float32frombytes(124, 125, 126, 127) {
		t.Errorf("expert 1 is %v (%v)", x.Data, err)
	}
}

func float32frombytes(b ...byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}
