package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestMissing checks what a checkpoint lacks: layers and tensors of a layer; and that layers of several kinds, and parts of models, lack
// nothing.
func TestMissing(t *testing.T) {
	dense := []string{"self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"}
	layers := func(n int, leave ...string) (names []string) {
		names = []string{"model.embed_tokens", "model.norm"}
		for i := range n {
			for _, module := range dense {
				if name := fmt.Sprintf("model.layers.%d.%s", i, module); !slices.Contains(leave, name) {
					names = append(names, name)
				}
			}
		}
		return names
	}
	moe := append(slices.DeleteFunc(layers(3), func(name string) bool { return strings.Contains(name, "layers.2.mlp") }),
		"model.layers.2.mlp.gate", "model.layers.2.mlp.experts.0.up_proj")
	for name, c := range map[string]struct {
		config string
		names  []string
		want   string
	}{
		"whole":       {`{"num_hidden_layers": 3}`, layers(3), ""},
		"last layers": {`{"num_hidden_layers": 5}`, layers(3), "2 of 5 layers are missing, the first model.layers.3"},
		"nested":      {`{"text_config": {"num_hidden_layers": 4}}`, layers(3), "1 of 4 layers are missing, the first model.layers.3"},
		"tensor": {`{"num_hidden_layers": 3}`, layers(3, "model.layers.1.self_attn.k_proj"),
			"uneven: model.layers.1 has no self_attn.k_proj.weight, which 2 other layers have: if it is not so in the original, fetch it again"},
		"two tensors": {`{"num_hidden_layers": 4}`, layers(4, "model.layers.1.self_attn.k_proj", "model.layers.2.mlp.up_proj"),
			"uneven: model.layers.1 has no self_attn.k_proj.weight, which 3 other layers have: if it is not so in the original, fetch it again; " +
				"uneven: model.layers.2 has no mlp.up_proj.weight, which 3 other layers have: if it is not so in the original, fetch it again"},
		"sequential":   {`{"num_hidden_layers": 3}`, append(layers(3), "projector.layers.0", "projector.layers.2"), ""},
		"GPT-2":        {`{"n_layer": 3}`, []string{"wte", "h.0.mlp.c_fc", "h.2.mlp.c_fc", "ln_f"}, "1 of 3 layers are missing, the first h.1"},
		"not counted":  {`{}`, []string{"wte", "h.0.mlp.c_fc", "h.2.mlp.c_fc", "ln_f"}, ""},
		"further":      {`{"num_hidden_layers": 2}`, layers(3), ""},
		"shared cache": {`{"num_hidden_layers": 3, "num_kv_shared_layers": 1}`, layers(3, "model.layers.2.self_attn.k_proj"), ""},
		"experts":      {`{"num_hidden_layers": 3}`, moe, ""},
		"layers alone": {`{"num_hidden_layers": 9}`, layers(3)[2:], ""},
	} {
		m := readNamed(t, c.config, c.names)
		got := slices.Clone(m.Missing)
		for _, text := range m.Notes {
			got = append(got, "uneven: "+text)
		}
		if strings.Join(got, "; ") != c.want || len(m.Problems) != len(m.Missing) {
			t.Errorf("%s: got %q and problems %v, want %q", name, got, m.Problems, c.want)
		}
	}
}

// readNamed reads a checkpoint with weights of one element.
func readNamed(t *testing.T, config string, modules []string) *Model {
	t.Helper()
	var tensors []rawTensor
	for _, module := range modules {
		name := module + ".weight"
		if strings.HasSuffix(module, ".qweight") { // of GPTQ
			name = module
		}
		tensors = append(tensors, rawTensor{name, safetensors.BF16, []int64{1}, nil})
	}
	return readRaw(t, config, nil, tensors...)
}

// TestNeeded: a checkpoint of a known family lacks what its models need, in any form, and nothing else.
func TestNeeded(t *testing.T) {
	const config = `{"model_type": "llama", "num_hidden_layers": 2, "tie_word_embeddings": true}`
	whole := []string{"model.embed_tokens", "model.norm"}
	for i := range 2 {
		for _, module := range []string{"input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
			"self_attn.o_proj",
			"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
			whole = append(whole, fmt.Sprintf("model.layers.%d.%s", i, module))
		}
	}
	without := func(gone ...string) []string {
		return slices.DeleteFunc(slices.Clone(whole), func(name string) bool { return slices.Contains(gone, name) })
	}
	renamed := func(old, by string, names []string) (all []string) {
		for _, name := range names {
			all = append(all, strings.Replace(name, old, by, 1))
		}
		return all
	}
	mixture := func(names []string, more ...string) []string {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.Contains(name, ".1.mlp.") })
		return append(names, append(more, "model.layers.1.mlp.gate", "model.layers.0.self_attn.q_norm", "model.layers.0.self_attn.k_norm",
			"model.layers.1.self_attn.q_norm", "model.layers.1.self_attn.k_norm")...)
	}
	const experts = `{"model_type": "qwen3_moe", "num_hidden_layers": 2, "num_experts": 1, "num_experts_per_tok": 1, "mlp_only_layers": ` +
		`[0], "tie_word_embeddings": true}`
	for name, c := range map[string]struct {
		config string
		names  []string
		want   string
	}{
		"whole":      {config, whole, ""},
		"projection": {config, without("model.layers.1.self_attn.q_proj"), "model.layers.1.self_attn.q_proj.weight is missing"},
		"embedding":  {config, without("model.embed_tokens"), "model.embed_tokens.weight is missing"},
		"last norm":  {config, without("model.norm"), "model.norm.weight is missing"},
		"two": {config, without("model.layers.0.mlp.up_proj", "model.norm"),
			"model.layers.0.mlp.up_proj.weight is missing, and 1 more tensors"},
		"head": {strings.Replace(config, "true", "false", 1), whole, "lm_head.weight is missing"},
		"biases": {strings.Replace(config, "llama", "qwen2", 1), whole,
			"model.layers.0.self_attn.q_proj.bias is missing, and 5 more tensors"},
		"layers": {strings.Replace(config, "2", "3", 1), without("model.norm"),
			"1 of 3 layers are missing, the first model.layers.2"},
		"unknown key":    {strings.Replace(config, "{", `{"x": 1, `, 1), without("model.norm"), ""},
		"unknown family": {strings.Replace(config, "llama", "lama", 1), without("model.norm"), ""},
		"other codes":    {config, renamed("q_proj", "q_proj.qweight", whole), ""},
		"wrapped": {`{"model_type": "gemma3", "text_config": {"num_hidden_layers": 0}}`, []string{"language_model.model.layers.0.x",
			"language_model.model.norm"}, ""},
		"experts": {experts, mixture(whole, "model.layers.1.mlp.experts.0.gate_proj", "model.layers.1.mlp.experts.0.up_proj",
			"model.layers.1.mlp.experts.0.down_proj"), ""},
		"part of experts": {experts, mixture(whole, "model.layers.1.mlp.experts.0.gate_proj", "model.layers.1.mlp.experts.0.down_proj"),
			"model.layers.1.mlp.experts.0.up_proj.weight is missing"},
		"declared without end": {strings.Replace(strings.Replace(experts, `"num_experts": 1`, `"num_experts": 1000000`, 1), "2", "60", 1),
			mixture(whole), "58 of 60 layers are missing, the first model.layers.2"},
		"without end": {strings.Replace(experts, `"num_experts": 1`, `"num_experts": 1000000`, 1), mixture(whole),
			"model.layers.1.mlp.experts.0.gate_proj.weight and more than 999 other tensors are missing"},
	} {
		m := readNamed(t, c.config, c.names)
		if got := strings.Join(m.Missing, "; "); got != c.want || len(m.Notes) > 0 {
			t.Errorf("%s: got %q, want %q; uneven %q", name, got, c.want, m.Notes)
		}
	}
	tensors := []rawTensor{{"model.layers.1.mlp.experts.gate_up_proj", safetensors.BF16, []int64{1, 2, 2}, nil}}
	for _, module := range mixture(whole) {
		tensors = append(tensors, rawTensor{module + ".weight", safetensors.BF16, []int64{1}, nil})
	}
	if m := readRaw(t, experts, nil, tensors...); len(m.Missing) > 0 {
		t.Errorf("experts in one tensor: %q", m.Missing)
	}
}

// TestDeclaredWithoutEnd: the time to find what is missing depends on the tensors, and not on the numbers that the configuration declares,
// with which each case would take hours.
func TestDeclaredWithoutEnd(t *testing.T) {
	const many = `60000000000`
	single := `{"model_type": "qwen3_moe", "num_hidden_layers": 1, "num_experts": ` + many + `, "num_experts_per_tok": 1}`
	ends := []string{"model.embed_tokens", "model.norm"}
	for name, c := range map[string]struct {
		config string
		names  []string
		want   string
	}{
		"layers": {`{"num_hidden_layers": ` + many + `}`, append(ends, "model.layers.0.mlp.up_proj", "model.layers.2.mlp.up_proj"),
			"59999999998 of 60000000000 layers are missing, the first model.layers.1"},
		"experts": {single, append(ends, "model.layers.0.input_layernorm", "model.layers.0.mlp.experts.0.gate_proj"),
			"model.layers.0.post_attention_layernorm.weight and more than 999 other tensors are missing"},
	} {
		if got := strings.Join(readNamed(t, c.config, c.names).Missing, "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	stacked := []rawTensor{{"model.layers.0.mlp.experts.gate_up_proj", safetensors.BF16, []int64{1, 2, 2}, nil}}
	for _, module := range ends {
		stacked = append(stacked, rawTensor{module + ".weight", safetensors.BF16, []int64{1}, nil})
	}
	const want = "model.layers.0.input_layernorm.weight is missing, and 9 more tensors"
	if got := strings.Join(readRaw(t, single, nil, stacked...).Missing, "; "); got != want {
		t.Errorf("experts in one tensor: got %q, want %q", got, want)
	}
}
