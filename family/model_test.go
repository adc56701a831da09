package family

import (
	"maps"
	"slices"
	"testing"
)

// shapes are tensors of a model, by name.
type shapes map[string][]int64

// of returns the structure of a model.
func (s shapes) of(config string) *Model {
	return New([]byte(config), func(yield func(string, []int64) bool) {
		for _, name := range slices.Sorted(maps.Keys(s)) {
			if !yield(name, s[name]) {
				return
			}
		}
	})
}

// TestStackOf: which tensors hold all experts of a layer, and in which layout.
func TestStackOf(t *testing.T) {
	const e, h, i = 4, 64, 48
	for _, tc := range []struct {
		name, config string
		tensors      shapes
		want         map[string]string // what each is; tensors that are absent hold no experts
	}{
		{"as in transformers 5", `{"hidden_size": 64, "num_experts": 4}`,
			shapes{"l.0.experts.gate_up_proj": {e, 2 * i, h}, "l.0.experts.down_proj": {e, h, i}, "l.0.q.weight": {h, h},
				"l.0.conv.weight": {h, 1, 4}},
			map[string]string{"l.0.experts.gate_up_proj": "straight", "l.0.experts.down_proj": "straight"}},
		{"transposed", `{"text_config": {"hidden_size": 64, "n_routed_experts": 4}}`,
			shapes{"l.0.experts.gate_up_proj": {e, h, 2 * i}, "l.0.experts.down_proj": {e, i, h}},
			map[string]string{"l.0.experts.gate_up_proj": "transposed", "l.0.experts.down_proj": "transposed"}},
		{"as wide as the model: its sibling decides", `{"hidden_size": 64, "num_local_experts": 4}`,
			shapes{"l.0.moe.input_linear.weight": {e, h, 2 * h}, "l.0.moe.output_linear.weight": {e, h, h}},
			map[string]string{"l.0.moe.input_linear.weight": "transposed", "l.0.moe.output_linear.weight": "transposed"}},
		{"nothing decides", `{"hidden_size": 64, "num_experts": 4}`,
			shapes{"l.0.experts.up_proj": {e, h, h}, "l.0.experts.down_proj": {e, h, h}},
			map[string]string{"l.0.experts.up_proj": "guess", "l.0.experts.down_proj": "guess"}},
		{"the row decides", `{"model_type": "llama4_text", "hidden_size": 64, "num_experts": 4}`,
			shapes{"l.0.experts.down_proj": {e, h, h}}, map[string]string{"l.0.experts.down_proj": "transposed"}},
		{"another name", `{"hidden_size": 64, "moe_num_experts": [4, 6]}`,
			shapes{"l.0.moe.mystery": {6, h, i}, "l.0.other": {5, h, i}}, map[string]string{"l.0.moe.mystery": "unknown"}},
		{"another width", `{"hidden_size": 128, "num_experts": 4}`,
			shapes{"l.0.experts.up_proj": {e, h, i}}, map[string]string{"l.0.experts.up_proj": "unknown"}},
		{"in one matrix", `{"d_model": 64, "ffn_config": {"moe_num_experts": 4}}`,
			shapes{"b.0.ffn.experts.mlp.w1": {e * i, h}}, map[string]string{"b.0.ffn.experts.mlp.w1": "unknown"}},
		{"beside single experts", `{"hidden_size": 64, "num_experts": 4}`,
			shapes{"l.0.experts.3.up_proj.weight": {i, h}, "l.0.experts.scores": {e, h, i}}, nil},
		{"biases and scales", `{"hidden_size": 64, "num_experts": 4}`,
			shapes{"l.0.experts.gate_up_proj_bias": {e, 2 * i}, "l.0.experts.down_proj_scales": {e, h, 32}}, nil},
		{"kernels of convolutions", `{"hidden_size": 64, "num_experts": 4}`,
			shapes{"l.0.conv.weight": {4, 1, 64}, "l.0.conv1.weight": {4, 64, 3}}, nil},
	} {
		m := tc.tensors.of(tc.config)
		for name, shape := range tc.tensors {
			got := ""
			switch s := m.StackOf(name, shape, true); {
			case s == nil:
			case s.Unknown != "":
				got = "unknown"
			case s.Guess != "":
				got = "guess"
			case s.Transposed:
				got = "transposed"
			default:
				got = "straight"
			}
			if got != tc.want[name] {
				t.Errorf("%s: %s is %q, want %q", tc.name, name, got, tc.want[name])
			}
		}
	}
}

// TestRoles: what shapes and the configuration say of a weight.
func TestRoles(t *testing.T) {
	const e, h = 16, 128
	mixture := shapes{
		"model.layers.0.mlp.gate.wg.weight": {e, h}, "model.layers.0.mlp.experts.0.up_proj.weight": {64, h},
		"model.layers.0.mlp.shared.up_proj.weight": {64, h}, "model.layers.0.self_attn.g_proj.weight": {e, h},
		"model.layers.0.self_attn.k_proj.weight": {e, h},
	}
	beside := shapes{ // the experts are beside attention, with a key projection of the router's shape
		"model.layers.0.experts.gate_up_proj": {e, 64, h}, "model.layers.0.router.proj.weight": {e, h},
		"model.layers.0.self_attn.k_proj.weight": {e, h},
	}
	next := shapes{
		"model.layers.0.q.weight": {h, h}, "model.layers.1.q.weight": {h, h}, "model.layers.2.q.weight": {h, h},
		"model.further.0.q.weight": {h, h}, "model.join.0.weight": {h, 2 * h},
	}
	for _, tc := range []struct {
		config  string
		tensors shapes
		want    map[string]string
	}{
		{`{"hidden_size": 128, "num_experts": 16}`, mixture, map[string]string{"model.layers.0.mlp.gate.wg.weight": router.Name}},
		{`{"hidden_size": 128, "num_experts": 16}`, beside, map[string]string{"model.layers.0.router.proj.weight": router.Name,
			"model.layers.0.experts.gate_up_proj": ""}},
		{`{"num_hidden_layers": 2, "num_nextn_predict_layers": 1}`, next, map[string]string{
			"model.layers.2.q.weight": furtherTokens.Name, "model.further.0.q.weight": furtherTokens.Name,
			"model.join.0.weight": furtherTokens.Name}},
		{`{"num_hidden_layers": 3}`, next, nil},
		{`{"hidden_size": 128}`, shapes{"h.0.mlp.c_fc.weight": {64, h}, "h.0.mlp.c_proj.weight": {h, 64}}, nil},
		{`{"hidden_size": 128}`, shapes{"h.0.mlp.c_fc.weight": {h, 64}, "h.0.mlp.c_proj.weight": {64, h}}, map[string]string{
			"h.0.mlp.c_fc.weight": "transposed, as GPT-2 has it", "h.0.mlp.c_proj.weight": "transposed, as GPT-2 has it"}},
		{``, shapes{"l.0.conv.in_proj.weight": {3 * h, h}, "blocks.0.proj_out.weight": {h, h}, "l.0.self_attn.q_proj.weight": {h, h}}, nil},
		{``, shapes{"l.0.conv1d.weight": {h, 4}, "proj_out.weight": {h, h}}, map[string]string{"l.0.conv1d.weight": "convolution",
			"proj_out.weight": "output head"}},
	} {
		m := tc.tensors.of(tc.config)
		for name, shape := range tc.tensors {
			got := ""
			if roles := m.Roles(name, shape); len(roles) > 0 {
				got = roles[0].Name
			}
			if got != tc.want[name] {
				t.Errorf("%s: %s is %q, want %q", tc.config, name, got, tc.want[name])
			}
		}
	}
}

// TestLinear: which two-dimensional weights belong to linear modules, by shapes first.
func TestLinear(t *testing.T) {
	m := New([]byte(`{"vocab_size": 500, "max_position_embeddings": 64, "hidden_size": 32, "num_experts": 6}`),
		func(func(string, []int64) bool) {})
	for name, tc := range map[string]struct {
		shape []int64
		want  bool
	}{
		"model.layers.0.self_attn.q_proj.weight": {[]int64{32, 32}, true},
		"lm_head.weight":                         {[]int64{500, 32}, true},
		"embed_out.weight":                       {[]int64{500, 32}, true},
		"model.tokens.weight":                    {[]int64{500, 32}, false}, // as many rows as the vocabulary
		"model.places.weight":                    {[]int64{64, 32}, false},
		"model.layers.0.mlp.choice.weight":       {[]int64{6, 32}, false}, // as many as experts
		"model.embed_tokens.weight":              {[]int64{501, 32}, false},
		"model.layers.0.mlp.gate.weight":         {[]int64{8, 32}, false},
		"wpe.weight":                             {[]int64{65, 32}, false},
		"vision_tower.fc1.weight":                {[]int64{65, 32}, true},
	} {
		if got := m.Linear(name, tc.shape); got != tc.want {
			t.Errorf("%s %v is linear: %v", name, tc.shape, got)
		}
	}
	if none := (*Model)(nil); none.Linear("model.embed_tokens.weight", []int64{5, 5}) || !none.Linear("q.weight", []int64{5, 5}) {
		t.Error("without a configuration names decide")
	}
}
