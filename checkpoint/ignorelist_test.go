package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestIgnoreList: entries match the unquantized modules also where a client calls them otherwise,
// and no quantized module by any of its names.
func TestIgnoreList(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		unquantized, quantized string
		want                   string
		also, never            string // names of clients
	}{
		{"a tied head", "lm_head", "model.layers.0.mlp.up_proj", "lm_head re:(.*[.])?lm_head([.].*)?$",
			"language_model.lm_head lm_head.decoder", "model.lm_headless"},
		{"a tower", "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj vision_tower.vision_model.encoder.layers.1.self_attn.q_proj " +
			"language_model.lm_head",
			"language_model.model.layers.0.self_attn.q_proj",
			"re:(.*[.])?lm_head([.].*)?$ re:(.*[.])?vision_tower([.].*)?$",
			"model.vision_tower.vision_model.encoder.layers.0.self_attn.k_proj lm_head", "model.language_model.layers.1.self_attn.q_proj"},
		{"routers", "model.layers.0.block_sparse_moe.gate model.layers.1.block_sparse_moe.gate",
			"model.layers.0.block_sparse_moe.experts.0.w1 model.layers.0.mlp.gate_proj", "re:(.*[.])?gate([.].*)?$",
			"model.layers.0.mlp.gate layers.0.mlp.gate", "model.layers.0.mlp.gate_proj model.layers.0.mlp.gate_up_proj"},
		{"whole layers", "model.layers.1.self_attn.q_proj model.layers.1.mlp.up_proj",
			"model.layers.0.self_attn.q_proj model.layers.10.mlp.up_proj",
			"re:(.*[.])?layers[.]1([.].*)?$", "layers.1.mlp.up_proj model.language_model.layers.1.mlp.down_proj", "model.layers.11.mlp.up_proj"},
		{"a part of a layer", "model.layers.1.self_attn.q_proj", "model.layers.0.self_attn.q_proj model.layers.1.mlp.up_proj",
			"re:(.*[.])?layers[.]1[.]self_attn[.]q_proj$", "layers.1.self_attn.q_proj", "model.layers.11.self_attn.q_proj"},
		{"the end of another", "layers.0.up_proj", "model.layers.0.up_proj", "layers.0.up_proj", "", ""},
		{"the word model", "model.embed", "language.up_proj", "re:(.*[.])?embed([.].*)?$", "model.text.embed", "model.language.up_proj"},
		{"one of the experts", "mlp.experts.1.w1", "mlp.experts.0.w1", "re:(.*[.])?experts[.]1([.].*)?$", "model.mlp.experts.1.w2",
			"model.mlp.experts.10.w1"},
		{"lists in lists", "m.levels.0.norm", "m.levels.0.1.attn m.levels.0.1.mlp", "re:(.*[.])?norm([.].*)?$", "levels.0.norm",
			"levels.0.1.attn levels.0"},
		{"a part of a list in a list", "m.levels.0.1.norm", "m.levels.0.1.1.attn m.levels.0.0.norm", "re:(.*[.])?levels[.]0[.]1[.]norm$",
			"levels.0.1.norm", "levels.0.1.1.norm levels.0.1"},
		{"a module without a name", "0", "a.0", "0", "", "b.0"},
		{"other characters", "a+b.x", "ab.y", `re:(.*[.])?a\+b([.].*)?$`, "model.a+b", "model.aab.x"},
	} {
		unquantized, quantized := strings.Fields(tc.unquantized), strings.Fields(tc.quantized)
		list := compressedTensors.IgnoreList(unquantized, quantized)
		if got := strings.Join(list, " "); got != tc.want {
			t.Errorf("%s: the list is %s, want %s", tc.name, got, tc.want)
		}
		ignored := compressedTensors.Ignored(list)
		for _, name := range slices.Concat(unquantized, strings.Fields(tc.also)) {
			if !ignored(name) {
				t.Errorf("%s: %q does not match %s", tc.name, list, name)
			}
		}
		for _, name := range slices.Concat(quantized, strings.Fields(tc.never)) {
			if ignored(name) {
				t.Errorf("%s: %q matches %s", tc.name, list, name)
			}
		}
	}
	if got := modelOpt.IgnoreList([]string{"b", "a", "b"}, nil); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names of another convention are %q", got)
	}
}

// TestUnstoredHeads: the head that a client ties to the embedding, by the name that the client has.
func TestUnstoredHeads(t *testing.T) {
	for _, tc := range []struct{ config, weight, want string }{
		{`{"model_type": "llama"}`, "model.embed_tokens.weight", "lm_head"},
		{`{"model_type": "llama"}`, "lm_head.weight", ""},
		{`{"model_type": "llava", "text_config": {"model_type": "llama"}}`, "language_model.lm_head.weight", ""},
		{`{"model_type": "whisper"}`, "model.decoder.embed_tokens.weight", "proj_out"},
		{`{"model_type": "bert"}`, "cls.predictions.transform.dense.weight", "cls.predictions.decoder"},
		{`{"model_type": "other", "text_config": {"model_type": "modernbert"}}`, "head.dense.weight", "decoder"},
		{``, "model.embed_tokens.weight", ""},
	} {
		var config []byte
		if tc.config != "" {
			config = []byte(tc.config)
		}
		m := readConfigured(t, config, []safetensors.Spec{{Name: tc.weight, Dtype: safetensors.BF16, Shape: []int64{32, 64}}},
			func(string, []byte) {})
		if got := strings.Join(m.UnstoredHeads(), " "); got != tc.want {
			t.Errorf("%s with %s: got %q, want %q", tc.config, tc.weight, got, tc.want)
		}
	}
}
