package llamacpp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
)

// An architecture is a family of models in llama.cpp.
type architecture struct {
	name       string
	permuted   bool        // rows of queries and keys are in the order of interleaved rotation
	experts    *experts    // nil: the model is dense
	modules    [][2]string // rows that precede those of inLayer
	tensors    [][2]string // names of tensors of a layer, whose suffixes differ in GGUF
	joined     []joined
	constants  map[string]float64 // keys of config.json, and the values with which llama.cpp runs the model
	sizes      string             // defaults of head_dim and partial_rotary_factor, a JSON object; "": those of Llama
	keys       []setting          // metadata beside that of Llama
	activation string             // in config.json; "": silu
	partial    bool               // a part of each head may be rotated
	plusOne    bool               // norms have 1 added in the file
	windowed   int                // every layer but each windowed-th has a window; 0: the graph has no windows
	listed     bool               // the file lists the layers with windows, which windowed has if config.json does not
	localTheta float64            // rope_theta of layers with windows; 0: that of the others
	unrounded  bool               // the bounds of YaRN are not rounded in the checkpoint (truncate is false)
	unscaled   []string           // modules whose global scales llama.cpp does not read
	latent     bool               // attention has latent queries, keys and values
	longRope   bool               // the file may have the divisors of LongRoPE
	unrotated  int                // each unrotated-th layer has no rotary embedding; 0: all have one
	theta      float64            // of rotary embeddings in a config.json without rope_theta; 0: 10000
	// scaled: scores are divided by the root of head_dim or, in the model with that number of layers,
	// of hidden_size / num_attention_heads. 0: the configuration has no such scale.
	scaled int

	// Of the config.json of a file that is read.
	marker    string // a metadata key that tells files of the class from others of the architecture; "": none
	modelType string
	biasKey   string // says that queries have biases; "": they always have, or never
}

// A joined is a tensor of a layer whose rows are alternately those of two tensors of a GGUF file. The rows of
// biases are single elements.
type joined struct {
	name  string
	parts [2]string
}

// A setting is a number that config.json and the metadata have under different keys.
type setting struct {
	metadata, config string
	integer          bool
}

var slidingWindow = setting{"attention.sliding_window", "sliding_window", true}

// The names of gpt-oss: experts in one tensor, and tensors without suffixes.
var (
	gptOSSModules = [][2]string{{"post_attention_layernorm", "post_attention_norm"}}
	gptOSSTensors = [][2]string{
		{"self_attn.sinks", "attn_sinks.weight"},
		{"mlp.experts.down_proj", "ffn_down_exps.weight"}, {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
		{"mlp.experts.gate_proj_bias", "ffn_gate_exps.bias"}, {"mlp.experts.up_proj_bias", "ffn_up_exps.bias"},
	}
	gptOSSJoined = []joined{
		{"mlp.experts.gate_up_proj", [2]string{"ffn_gate_exps.weight", "ffn_up_exps.weight"}},
		{"mlp.experts.gate_up_proj_bias", [2]string{"ffn_gate_exps.bias", "ffn_up_exps.bias"}},
	}
)

// The modules of layers with norms before and after attention and MLP.
var gemmaModules = [][2]string{
	{"post_attention_layernorm", "post_attention_norm"}, {"pre_feedforward_layernorm", "ffn_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
}

// architectures has the supported architectures by their class in transformers. Sources: llama.cpp's
// converter (conversion/), its tables of names (src/llama-arch.cpp) and its graphs (src/models/).
var architectures = map[string]architecture{
	"LlamaForCausalLM":    {name: "llama", permuted: true, modelType: "llama", biasKey: "attention_bias"},
	"MistralForCausalLM":  {name: "llama", permuted: true, modelType: "llama", biasKey: "attention_bias"},
	"MixtralForCausalLM":  {name: "llama", permuted: true, modelType: "mixtral", marker: "expert_count", experts: &mixtral, theta: 1e6},
	"Qwen2ForCausalLM":    {name: "qwen2", modelType: "qwen2"},
	"Qwen3ForCausalLM":    {name: "qwen3", sizes: `{"head_dim": 128}`, modelType: "qwen3", biasKey: "attention_bias"},
	"Qwen2MoeForCausalLM": {name: "qwen2moe", modelType: "qwen2_moe", experts: &qwen2Experts},
	"Qwen3MoeForCausalLM": {name: "qwen3moe", modelType: "qwen3_moe", experts: &qwen3Experts, biasKey: "attention_bias"},
	"SmolLM3ForCausalLM":  {name: "smollm3", permuted: true, modelType: "smollm3", biasKey: "attention_bias", unrotated: 4, theta: 2e6},
	"GraniteForCausalLM": {name: "granite", permuted: true, modelType: "granite", biasKey: "attention_bias", keys: []setting{
		{"embedding_scale", "embedding_multiplier", false}, {"residual_scale", "residual_multiplier", false},
		{"attention.scale", "attention_multiplier", false}, {"logit_scale", "logits_scaling", false},
	}},
	"Olmo2ForCausalLM": {name: "olmo2", modelType: "olmo2", modules: [][2]string{
		{"post_attention_layernorm", "post_attention_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
	}},
	"Olmo3ForCausalLM": {name: "olmo2", theta: 5e5, marker: slidingWindow.metadata, modelType: "olmo3", windowed: 4, listed: true, keys: []setting{slidingWindow}, modules: [][2]string{
		{"post_attention_layernorm", "post_attention_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
	}},
	"GptOssForCausalLM": {name: "gpt-oss", sizes: `{"head_dim": 64}`, theta: 150000, modelType: "gpt_oss", modules: gptOSSModules, tensors: gptOSSTensors, joined: gptOSSJoined, experts: &gptOSSExperts, windowed: 2, unrounded: true,
		constants: map[string]float64{"swiglu_limit": 7, "swiglu_alpha": 1.702}, keys: []setting{slidingWindow}},
	"DeepseekV3ForCausalLM": {name: "deepseek2", modelType: "deepseek_v3", modules: deepSeekModules, tensors: deepSeekTensors, experts: &deepSeekExperts, latent: true, unscaled: deepSeekUnscaled,
		constants: map[string]float64{"rms_norm_eps": LatentEpsilon, "moe_layer_freq": 1}, keys: deepSeekKeys},
	"Glm4ForCausalLM": {name: "glm4", sizes: `{"head_dim": 128, "partial_rotary_factor": 0.5}`, modelType: "glm4", biasKey: "attention_bias", partial: true, modules: [][2]string{
		{"post_self_attn_layernorm", "post_attention_norm"}, {"post_attention_layernorm", "ffn_norm"}, {"post_mlp_layernorm", "post_ffw_norm"},
		{"mlp.gate_up_proj", "ffn_up"},
	}},
	"Phi3ForCausalLM": {name: "phi3", modelType: "phi3", partial: true, longRope: true, modules: [][2]string{
		{"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"},
	}},
	"Gemma2ForCausalLM": {name: "gemma2", sizes: `{"head_dim": 256}`, modelType: "gemma2", modules: gemmaModules, activation: "gelu_pytorch_tanh", plusOne: true, windowed: 2, scaled: 46, keys: []setting{
		{"attn_logit_softcapping", "attn_logit_softcapping", false}, {"final_logit_softcapping", "final_logit_softcapping", false}, slidingWindow,
	}},
	"Gemma3ForCausalLM": {name: "gemma3", sizes: `{"head_dim": 256}`, modelType: "gemma3_text", modules: gemmaModules, activation: "gelu_pytorch_tanh", plusOne: true, windowed: 6, scaled: 62, theta: 1e6, localTheta: 1e4, keys: []setting{
		slidingWindow,
	}},
}

// architectureOf returns the architecture of a file, and its class: the first in the order of names if
// llama.cpp makes no difference between several. The zero architecture is an unknown one.
func architectureOf(f *gguf.File) (class string, a architecture) {
	name, _ := f.Value("general.architecture").(string)
	for _, c := range slices.Sorted(maps.Keys(architectures)) {
		row := architectures[c]
		marked := row.marker != "" && f.Count(name+"."+row.marker) > 0
		if row.name == name && (marked || row.marker == "" && class == "") {
			class, a = c, row
		}
	}
	return class, a
}

func architectureNames() string {
	return strings.Join(slices.Sorted(maps.Keys(architectures)), ", ")
}

// above returns what the values of a tensor of a GGUF file are above those of the checkpoint.
func (a architecture) above(name string) float32 {
	if a.plusOne && strings.HasSuffix(name, "norm.weight") {
		return 1
	}
	return 0
}

// checkGraph returns an error if the model differs from what llama.cpp's graph has as constants.
func (m *Model) checkGraph() error {
	c, a := &m.config, m.architecture
	if act := cmp.Or(c.HiddenAct, c.HiddenActivation); act != "" && act != cmp.Or(a.activation, "silu") {
		return fmt.Errorf("hidden_act %q: llama.cpp runs %s with %s", act, a.name, cmp.Or(a.activation, "silu"))
	}
	if c.PartialRotary != nil && *c.PartialRotary != 1 && !a.partial {
		return fmt.Errorf("partial_rotary_factor %g: llama.cpp runs %s with rotary embeddings of all of a head", *c.PartialRotary, a.name)
	}
	for _, key := range slices.Sorted(maps.Keys(a.constants)) {
		var x float64
		if raw, ok := m.members[key]; ok && (json.Unmarshal(raw, &x) != nil || x != a.constants[key]) {
			return fmt.Errorf("%s is %s, and llama.cpp runs %s with %g", key, raw, a.name, a.constants[key])
		}
	}
	for i, kind := range c.LayerTypes {
		if windowed := a.windowed > 0 && (i+1)%a.windowed != 0; !a.listed && (kind == family.SlidingLayer) != windowed {
			return fmt.Errorf("layer_types: layer %d is %s, and llama.cpp runs %s with windows in %s", i, kind, a.name, a.windows())
		}
	}
	if c.RotatedLayers == nil && c.UnrotatedEach != 0 && c.UnrotatedEach != a.unrotated {
		return fmt.Errorf("no_rope_layer_interval is %d, and llama.cpp runs %s with %d", c.UnrotatedEach, a.name, a.unrotated)
	}
	for i, rotated := range c.RotatedLayers {
		if want := a.unrotated == 0 || (i+1)%a.unrotated != 0; (rotated != 0) != want {
			return fmt.Errorf("no_rope_layers: layer %d is %d, and llama.cpp runs %s without rotary embeddings in each %dth layer only", i, rotated, a.name, a.unrotated)
		}
	}
	if c.Window != nil && a.windowed == 0 && *c.Window < c.ContextLength && (c.UseWindow == nil || *c.UseWindow) {
		m.Notes = append(m.Notes, fmt.Sprintf("llama.cpp runs %s without windows: after %d tokens, the results differ from those of the checkpoint", a.name, *c.Window))
	}
	if want := a.queryScalar(c.Layers, c.HeadDim, c.HiddenSize, c.Heads); c.QueryScalar != nil && *c.QueryScalar != want {
		return fmt.Errorf("query_pre_attn_scalar is %g: llama.cpp runs %s of %d layers with %g", *c.QueryScalar, a.name, c.Layers, want)
	}
	return nil
}

// windows describes the layers that have windows.
func (a architecture) windows() string {
	if a.windowed == 0 {
		return "no layer"
	}
	return fmt.Sprintf("all but each %dth", a.windowed)
}

// queryScalar returns query_pre_attn_scalar of a model.
func (a architecture) queryScalar(layers, headDim, hidden, heads int) float64 {
	if layers == a.scaled && heads > 0 {
		return float64(hidden / heads)
	}
	return float64(headDim)
}

// windowList is the metadata key of the layers with windows.
const windowList = "attention.sliding_window_pattern"

// describeWindows adds the list of layers with windows.
func (m *Model) describeWindows() error {
	a, c := m.architecture, m.config
	if !a.listed {
		return nil
	}
	if n := len(c.LayerTypes); n > 0 && n != c.Layers {
		return fmt.Errorf("layer_types has %d layers, want num_hidden_layers, %d: fetch it again", n, c.Layers)
	}
	list := make([]bool, c.Layers)
	for i := range list {
		list[i] = (i+1)%a.windowed != 0
		if len(c.LayerTypes) > 0 {
			list[i] = c.LayerTypes[i] == family.SlidingLayer
		}
	}
	m.set(windowList, list)
	return nil
}

// describeKeys adds the metadata of the architecture.
func (m *Model) describeKeys() error {
	for _, k := range m.architecture.keys {
		var x *float64
		if raw, ok := m.members[k.config]; !ok {
			return fmt.Errorf("%s is missing: fetch it again", k.config)
		} else if err := json.Unmarshal(raw, &x); err != nil {
			return fmt.Errorf("%s: got %s, want a number", k.config, raw)
		}
		switch {
		case x == nil:
		case k.integer && (*x < 0 || *x > math.MaxUint32 || *x != math.Trunc(*x)):
			return fmt.Errorf("%s is %g, want a count", k.config, *x)
		case k.integer:
			m.set(k.metadata, uint32(*x))
		default:
			m.set(k.metadata, float32(*x))
		}
	}
	return nil
}
