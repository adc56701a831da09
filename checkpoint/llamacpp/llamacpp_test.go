package llamacpp

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// config1B is the configuration of a Llama of 1 B parameters with rope scaling.
const config1B = `{"architectures": ["LlamaForCausalLM"], "vocab_size": 300, "hidden_size": 2048, "intermediate_size": 8192,
	"num_hidden_layers": 16,
	"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
	"rope_theta": 500000.0,
	"bos_token_id": 0, "eos_token_id": [1, 2], "hidden_act": "silu",
	"rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
	"rope_type": "llama3"}}`

// open returns a checkpoint with the given auxiliary files.
func open(t *testing.T, files map[string]string) *hf.Checkpoint {
	t.Helper()
	return openOf(t, files, safetensors.Spec{Name: "w", Dtype: safetensors.U8})
}

// openOf is open with a tensor of one byte as the weights.
func openOf(t *testing.T, files map[string]string, weights safetensors.Spec) *hf.Checkpoint {
	t.Helper()
	dir := t.TempDir()
	l, err := safetensors.NewLayout([]safetensors.Spec{weights}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	files["model.safetensors"] = string(l.HeaderBytes()) + "x"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func describe(t *testing.T, files map[string]string) *Model {
	t.Helper()
	m, err := Describe(open(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pairs returns the metadata by key, and fails if a key occurs twice.
func pairs(t *testing.T, m *Model) map[string]any {
	t.Helper()
	if _, err := gguf.NewLayout(nil, m.Metadata); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for _, p := range m.Metadata {
		values[p.Key] = p.Value
	}
	return values
}

func expect(t *testing.T, got, want map[string]any) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(got[key], want[key]) {
			t.Errorf("%s is %v (%T), want %v (%T)", key, got[key], got[key], want[key], want[key])
		}
	}
}

func TestHyperparameters(t *testing.T) {
	m := describe(t, map[string]string{"config.json": config1B})
	expect(t, pairs(t, m), map[string]any{
		"general.architecture": "llama", "general.quantization_version": uint32(2),
		"llama.block_count": uint32(16), "llama.context_length": uint32(131072), "llama.embedding_length": uint32(2048),
		"llama.feed_forward_length":  uint32(8192),
		"llama.attention.head_count": uint32(32), "llama.attention.head_count_kv": uint32(8), "llama.attention.key_length": uint32(64),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "llama.rope.freq_base": float32(500000),
		"llama.rope.dimension_count": uint32(64),
		"llama.vocab_size":           uint32(300), "tokenizer.ggml.model": "none", "llama.rope.scaling.type": nil,
	})
	if len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "no tokenizer") {
		t.Errorf("notes %q", m.Notes)
	}
	windowed := describe(t, map[string]string{"config.json": with(t, `{"architectures": ["MistralForCausalLM"], "sliding_window": 4096}`)})
	if len(windowed.Notes) != 2 || !strings.Contains(windowed.Notes[0], "without windows: after 4096 tokens") {
		t.Errorf("notes %q", windowed.Notes)
	}
	if len(m.Extra) != 1 || m.Extra[0].Name != "rope_freqs.weight" {
		t.Fatalf("extra tensors %v", m.Extra)
	}
	// The factors of Llama 3.2, computed in Python: for short, medium and long wavelengths.
	f := m.Extra[0].Values
	for i, want := range map[int]float32{0: 1, 14: 1, 15: 1.6513293, 16: 3.292262, 17: 9.666729, 18: 32, 31: 32} {
		if i < len(f) && (f[i]-want > 1e-4*want || want-f[i] > 1e-4*want) {
			t.Errorf("factor %d is %g, want %g (all: %v)", i, f[i], want, f)
		}
	}
	if len(f) != 32 || !slices.IsSorted(f) {
		t.Errorf("factors %v", f)
	}
}

// with returns the configuration with changed members; null removes one.
func with(t *testing.T, members string) string {
	t.Helper()
	all, other := map[string]any{}, map[string]any{}
	for text, into := range map[string]*map[string]any{config1B: &all, members: &other} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	maps.Copy(all, other)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConfigurations(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   map[string]any
		extra  int
	}{
		"left out": {`{"rope_scaling": null, "rope_theta": null, "num_key_value_heads": null, "head_dim": null}`,
			map[string]any{"llama.attention.head_count_kv": uint32(32), "llama.rope.freq_base": float32(10000),
				"llama.attention.key_length": uint32(64)}, 0},
		"default": {`{"rope_scaling": {"rope_type": "default"}}`, map[string]any{"llama.rope.scaling.type": nil}, 0},
		"linear": {`{"rope_scaling": {"type": "linear", "factor": 4}}`, map[string]any{"llama.rope.scaling.type": "linear",
			"llama.rope.scaling.factor": float32(4)}, 0},
		// 2.4158883 is twice YaRN's own factor for 8, 0.1·ln 8 + 1.
		"magnitude": {`{"rope_scaling": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 4096, "attention_factor": ` +
			`2.4158883083359672}}`, map[string]any{"llama.rope.scaling.attn_factor": float32(2),
			"llama.rope.scaling.yarn_attn_factor": float32(2.4158883083359672)}, 0},
		"magnitude 1": {`{"rope_scaling": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 4096, "attention_factor": ` +
			`1.2079441541679836}}`, map[string]any{"llama.rope.scaling.attn_factor": nil}, 0},
		"yarn": {`{"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 4096, "beta_fast": 16}}`,
			map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.original_context_length": uint32(4096),
				"llama.rope.scaling.yarn_beta_fast": float32(16), "llama.rope.scaling.yarn_beta_slow": nil}, 0},
		"parameters": {`{"rope_theta": null, "rope_scaling": null, "rope_parameters": {"rope_theta": 7, "rope_type": "default"}}`,
			map[string]any{"llama.rope.freq_base": float32(7)}, 0},
		"qwen3": {`{"architectures": ["Qwen3ForCausalLM"], "rope_scaling": null}`, map[string]any{"general.architecture": "qwen3",
			"qwen3.block_count": uint32(16)}, 0},
		"mistral": {`{"architectures": ["MistralForCausalLM"]}`, map[string]any{"general.architecture": "llama"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := describe(t, map[string]string{"config.json": with(t, tc.config)})
			expect(t, pairs(t, m), tc.want)
			if len(m.Extra) != tc.extra {
				t.Errorf("extra tensors %v", m.Extra)
			}
		})
	}
}

func TestRejectedConfigurations(t *testing.T) {
	for config, want := range map[string]string{
		`{"architectures": ["GemmaForCausalLM"]}`: `"GemmaForCausalLM" is not supported in GGUF, only ` +
			`DeepseekV3ForCausalLM, Gemma2ForCausalLM`,
		`{"architectures": null}`:                                  "architectures is missing",
		`{"hidden_size": "x"}`:                                     "hidden_size: unexpected string",
		`{"hidden_size": 0}`:                                       "hidden_size is 0, want 1 to",
		`{"num_hidden_layers": -1}`:                                "num_hidden_layers is -1, want 1 to",
		`{"num_local_experts": 8}`:                                 `the key "num_local_experts", with the value 8, is not known for llama`,
		`{"hidden_act": "gelu"}`:                                   `hidden_act is "gelu": only "silu" is supported`,
		`{"partial_rotary_factor": 0.5}`:                           "partial_rotary_factor 0.5",
		`{"head_dim": 63}`:                                         "head_dim is 63, want an even number",
		`{"head_dim": -2}`:                                         "head_dim is -2, want 1 to",
		`{"head_dim": 1073741824}`:                                 "head_dim is 1073741824, want 1 to",
		`{"head_dim": null, "num_attention_heads": 4096}`:          "head_dim is 0, want 1 to",
		`{"rope_scaling": {"rope_type": "longrope", "factor": 2}}`: `"longrope" is not supported`,
		`{"architectures": ["Phi3ForCausalLM"], "rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}, ` +
			`"original_max_position_embeddings": 64}`: `longrope has 1 short and 1 long factors and an original length of 64, want 32 factors ` +
			`of each`,
		`{"rope_scaling": {"rope_type": "yarn", "factor": 2}}`: `"yarn" is not ` +
			`supported in GGUF, only linear, llama3 and yarn with original`,
		`{"rope_scaling": {"rope_type": "linear"}}`: "has no factor",
		`{"rope_parameters": ` +
			`{"partial_rotary_factor": 0.5}}`: "partial_rotary_factor 0.5",
		`{"layer_types": ["sliding_attention"]}`: `the key "layer_types"`,
		`{"no_rope_layers": [0]}`:                `the key "no_rope_layers"`,
		`{"architectures": ["SmolLM3ForCausalLM"], ` +
			`"no_rope_layer_interval": 3}`: "no_rope_layer_interval is 3, and llama.cpp runs smollm3 with 4",
		`{"architectures": ["GraniteForCausalLM"], ` +
			`"embedding_multiplier": "x"}`: "embedding_multiplier: unexpected string",
		`{"architectures": ["Gemma3ForCausalLM"], "hidden_act": null, "sliding_window": 1.5}`: "sliding_window: " +
			"unexpected number 1.5",
		`{"architectures": ` +
			`["Gemma3ForCausalLM"]}`: `hidden_act "silu": llama.cpp runs gemma3 with gelu_pytorch_tanh`,
		`{"architectures": ["Gemma3ForCausalLM"], "hidden_act": null, "sliding_window": 8, ` +
			`"query_pre_attn_scalar": 32}`: "query_pre_attn_scalar is 32: llama.cpp runs gemma3 of 16 layers with 64",
		`{"architectures": ["Gemma3ForCausalLM"], "hidden_act": null, "sliding_window": 8, "layer_types": ["sliding_attention", ` +
			`"full_attention"]}`: "layer_types: layer 1 is full_attention",
	} {
		_, err := Describe(open(t, map[string]string{"config.json": with(t, config)}))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "config.json: ") {
			t.Errorf("%s: says %v, want %q in it", config, err, want)
		}
	}
	one := safetensors.Spec{Name: embeddings, Dtype: safetensors.U8, Shape: []int64{1, 1}}
	if _, err := Describe(openOf(t, map[string]string{"config.json": with(t, `{"vocab_size": 65536, "hidden_size": 1}`)}, one)); err == nil ||
		!strings.Contains(err.Error(), "vocab_size is 65536 in config.json, and model.embed_tokens.weight has 1 rows") {
		t.Errorf("says %v", err)
	}
	if _, err := Describe(open(t, map[string]string{})); err == nil || !strings.Contains(err.Error(), "config.json is missing") {
		t.Errorf("says %v", err)
	}
}

func TestPlaces(t *testing.T) {
	m := describe(t, map[string]string{"config.json": config1B})
	for name, want := range map[string]Place{
		"model.embed_tokens.weight":                      {Name: "token_embd.weight"},
		"model.norm.weight":                              {Name: "output_norm.weight"},
		"lm_head.weight":                                 {Name: "output.weight"},
		"model.layers.0.input_layernorm.weight":          {Name: "blk.0.attn_norm.weight"},
		"model.layers.11.self_attn.q_proj.weight":        {Name: "blk.11.attn_q.weight", HeadDim: 64},
		"model.layers.11.self_attn.k_proj.bias":          {Name: "blk.11.attn_k.bias", HeadDim: 64, F32: true},
		"model.layers.11.self_attn.v_proj.weight":        {Name: "blk.11.attn_v.weight"},
		"model.layers.1.self_attn.o_proj.weight":         {Name: "blk.1.attn_output.weight"},
		"model.layers.1.post_attention_layernorm.weight": {Name: "blk.1.ffn_norm.weight"},
		"model.layers.1.mlp.gate_proj.weight":            {Name: "blk.1.ffn_gate.weight"},
		"model.layers.1.mlp.up_proj.weight":              {Name: "blk.1.ffn_up.weight"},
		"model.layers.1.mlp.down_proj.weight":            {Name: "blk.1.ffn_down.weight"},
		"model.layers.1.self_attn.rotary_emb.inv_freq":   {},
	} {
		p, err := m.Place(name, []int64{128, 2048})
		if err != nil || p != want {
			t.Errorf("%s goes to %v (%v), want %v", name, p, err, want)
		}
		if back, ok := m.architecture.original(p.Name); p.Name != "" && (!ok || back != name) {
			t.Errorf("%s comes back as %q", name, back)
		}
	}
	for _, name := range []string{"model.layers.0.mlp.experts.0.w1.weight", "model.layers.x.mlp.up_proj.weight", "model.norm", "norm.weight",
		"visual.blocks.0.attn.weight"} {
		if _, err := m.Place(name, []int64{64, 64}); err == nil || !strings.Contains(err.Error(), "no such tensor") {
			t.Errorf("%s: says %v", name, err)
		}
	}
	if _, err := m.Place("model.layers.0.self_attn.q_proj.weight", []int64{100, 64}); err == nil || !strings.Contains(err.Error(),
		"not heads of 64 rows") {
		t.Errorf("says %v", err)
	}
	if name, ok := m.architecture.original("rope_freqs.weight"); ok {
		t.Errorf("rope_freqs.weight comes back as %q", name)
	}
}

// TestRows compares the order of rows with that of the converter: reshape(heads, 2, d/2),
// swapaxes(1, 2).
func TestRows(t *testing.T) {
	for _, d := range []int{0, 2, 4, 64, 96} {
		p := Place{HeadDim: d}
		const heads = 3
		seen := map[int]bool{}
		for r := range heads * max(d, 5) {
			want := r
			if d > 0 {
				head, half, i := r/d, r%d/(d/2), r%(d/2)
				want = (head*(d/2)+i)*2 + half
			}
			if got := p.Row(r); got != want || p.Source(got) != r {
				t.Errorf("heads of %d: row %d becomes %d and comes back as %d, want %d", d, r, got, p.Source(got), want)
			}
			seen[p.Row(r)] = true
		}
		if len(seen) != heads*max(d, 5) {
			t.Errorf("heads of %d: %d rows", d, len(seen))
		}
	}
}
