package convert

import (
	"encoding/json"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// graphs are dense models of one layer whose names or settings in llama.cpp are not Llama's: the norms
// of a layer, whether linear layers are fused, members of config.json, and what the file returns of it.
var graphs = map[string]struct {
	norms         []string
	qkv, gateUp   bool
	config, wants string
}{
	"SmolLM3ForCausalLM": {[]string{"input_layernorm", "post_attention_layernorm"}, false, false, `"no_rope_layers": [1]`,
		`{"model_type": "smollm3"}`},
	"GraniteForCausalLM": {[]string{"input_layernorm", "post_attention_layernorm"}, false, false,
		`"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.5, "logits_scaling": 8`,
		`{"model_type": "granite", "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.5, "logits_scaling": 8}`},
	"Olmo2ForCausalLM": {[]string{"post_attention_layernorm", "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm"}, false,
		false, "", `{"model_type": "olmo2"}`},
	"Glm4ForCausalLM": {[]string{"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"}, false, true,
		`"attention_bias": false, "rope_parameters": {"rope_theta": 10000, "partial_rotary_factor": 0.5}`,
		`{"model_type": "glm4", "partial_rotary_factor": 0.5}`},
	"Phi3ForCausalLM": {[]string{"input_layernorm", "post_attention_layernorm"}, true, true, `"partial_rotary_factor": 0.75`,
		`{"model_type": "phi3", "partial_rotary_factor": 0.75}`},
	"Gemma2ForCausalLM": {[]string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"},
		false, false,
		`"head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 64, "attn_logit_softcapping": 50, ` +
			`"final_logit_softcapping": 30, "sliding_window": 16, "layer_types": ["sliding_attention"]`,
		`{"model_type": "gemma2", "query_pre_attn_scalar": 64, "attn_logit_softcapping": 50, "final_logit_softcapping": 30, ` +
			`"sliding_window": 16}`},
	"Gemma3ForCausalLM": {[]string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
		"self_attn.q_norm", "self_attn.k_norm"}, false, false,
		`"head_dim": 64, "query_pre_attn_scalar": 64, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 16, "rope_parameters": ` +
			`{"full_attention": {"rope_theta": 1000000, "rope_type": "linear", "factor": 8}, "sliding_attention": {"rope_theta": 10000}}`,
		`{"model_type": "gemma3_text", "query_pre_attn_scalar": 64, "sliding_window": 16, "rope_theta": 1000000, "rope_scaling": ` +
			`{"rope_type": "linear", "factor": 8}}`},
}

// TestGGUFGraphs checks that a file has the tensors of the checkpoint under their names, and that its
// metadata become the configuration again.
func TestGGUFGraphs(t *testing.T) {
	for class, g := range graphs {
		t.Run(class, func(t *testing.T) {
			src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": layerOf(g.norms, g.qkv, g.gateUp)},
				graphConfig(class, g.config)))
			got := openGGUF(t, toGGUF(t, src, quant.MXFP4))
			report, err := verify.Compare(t.Context(), src.Source, got.Source, verify.Options{})
			if err != nil || !report.OK() {
				t.Errorf("%v (%v)", report.Problems, err)
			}
			requireMembers(t, got.Source.Config, g.wants)
		})
	}
}

// graphConfig returns the config.json of a small model with additional members.
func graphConfig(class, members string) string {
	if members != "" {
		members = ", " + members
	}
	return `{"architectures": ["` + class +
		`"], "vocab_size": 256, "microscale": {"vocabulary": "bytes"}, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1,
		"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
		"tie_word_embeddings": true` + members + "}"
}

// layerOf returns the tensors of a model of one layer, in which linear layers with a common input may be
// fused.
func layerOf(norms []string, qkv, gateUp bool) []made {
	const bf16, layer = safetensors.BF16, "model.layers.0."
	tensors := []made{{"model.embed_tokens.weight", bf16, 1, []int64{256, 128}}, {"model.norm.weight", bf16, 1, []int64{128}}}
	for _, n := range norms {
		tensors = append(tensors, made{layer + n + ".weight", bf16, 1, []int64{128}})
	}
	add := func(name string, rows, cols int64) {
		tensors = append(tensors, made{layer + name + ".weight", bf16, 1, []int64{rows, cols}})
	}
	add("self_attn.o_proj", 128, 128)
	add("mlp.down_proj", 128, 64)
	if qkv {
		add("self_attn.qkv_proj", 384, 128)
	} else {
		add("self_attn.q_proj", 128, 128)
		add("self_attn.k_proj", 128, 128)
		add("self_attn.v_proj", 128, 128)
	}
	if gateUp {
		add("mlp.gate_up_proj", 128, 128)
	} else {
		add("mlp.gate_proj", 64, 128)
		add("mlp.up_proj", 64, 128)
	}
	return tensors
}

// requireMembers checks that a JSON object has the members of another.
func requireMembers(t *testing.T, got []byte, want string) {
	t.Helper()
	var has, wants map[string]json.RawMessage
	if err := json.Unmarshal(got, &has); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wants); err != nil {
		t.Fatal(err)
	}
	for key, value := range wants {
		var a, b any
		if json.Unmarshal(has[key], &a) != nil || json.Unmarshal(value, &b) != nil || !jsonEqual(a, b) {
			t.Errorf("%s is %s, want %s", key, has[key], value)
		}
	}
}

func jsonEqual(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// TestGGUFNorms checks that norms of Gemma have 1 added in the file, and not in what is read of it.
func TestGGUFNorms(t *testing.T) {
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"model.embed_tokens.weight", safetensors.BF16, 1, []int64{256, 128}}, {"model.norm.weight", safetensors.BF16, 0.25, []int64{128}},
		{"model.layers.0.mlp.down_proj.weight", safetensors.BF16, 1, []int64{128, 64}},
	}}, graphConfig("Gemma3ForCausalLM", `"sliding_window": 16, "head_dim": 64, "query_pre_attn_scalar": 64`)))
	path := toGGUF(t, src, quant.MXFP4)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	norm, ok := f.Lookup("output_norm.weight")
	if !ok || norm.Type != gguf.F32 {
		t.Fatalf("output_norm.weight is %v", norm)
	}
	inFile, read := make([]byte, norm.Bytes()), make([]byte, norm.Bytes())
	view := openGGUF(t, path)
	w, _ := view.Lookup("model.norm.weight")
	part, _ := w.Part(checkpoint.Codes)
	if err := f.ReadTensorAt(inFile, norm, 0); err != nil {
		t.Fatal(err)
	}
	if err := part.Shard.File.ReadTensorAt(read, part.TensorInfo, 0); err != nil {
		t.Fatal(err)
	}
	values := func(raw []byte) []float32 {
		x := make([]float32, len(raw)/4)
		if err := tensor.FromBytes(x, raw, format.F32); err != nil {
			t.Fatal(err)
		}
		return x
	}
	above, original := values(inFile), values(read)
	for i := range above {
		if above[i]-original[i] != 1 || original[i] == 0 {
			t.Errorf("element %d is %g in the file and read as %g", i, above[i], original[i])
		}
	}
}
