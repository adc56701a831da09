package llamacpp

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An architecture is what llama.cpp calls a family of models.
type architecture struct {
	name     string
	permuted bool     // rows of queries and keys are in the order of interleaved rotation
	experts  *experts // nil: the model is dense
}

// architectures has those that are written, by the class of transformers.
var architectures = map[string]architecture{
	"LlamaForCausalLM":    {name: "llama", permuted: true},
	"MistralForCausalLM":  {name: "llama", permuted: true},
	"MixtralForCausalLM":  {name: "llama", permuted: true, experts: &mixtral},
	"Qwen2ForCausalLM":    {name: "qwen2"},
	"Qwen3ForCausalLM":    {name: "qwen3"},
	"Qwen2MoeForCausalLM": {name: "qwen2moe", experts: &qwen2Experts},
	"Qwen3MoeForCausalLM": {name: "qwen3moe", experts: &qwen3Experts},
}

func architectureNames() string {
	return strings.Join(slices.Sorted(maps.Keys(architectures)), ", ")
}

// names has the modules outside of layers, and those of a layer after
// "model.layers.N.": what the checkpoint calls them, and what llama.cpp does
// after "blk.N.".
var (
	outside = [][2]string{
		{"model.embed_tokens", "token_embd"},
		{"model.norm", "output_norm"},
		{"lm_head", "output"},
	}
	inLayer = [][2]string{
		{"input_layernorm", "attn_norm"},
		{"self_attn.q_proj", "attn_q"},
		{"self_attn.k_proj", "attn_k"},
		{"self_attn.v_proj", "attn_v"},
		{"self_attn.o_proj", "attn_output"},
		{"self_attn.q_norm", "attn_q_norm"},
		{"self_attn.k_norm", "attn_k_norm"},
		{"post_attention_layernorm", "ffn_norm"},
		{"mlp.gate_proj", "ffn_gate"},
		{"mlp.up_proj", "ffn_up"},
		{"mlp.down_proj", "ffn_down"},
	}
	layerName = regexp.MustCompile(`^model\.layers\.(\d+)\.(.+)$`)
	blockName = regexp.MustCompile(`^blk\.(\d+)\.(.+)$`)
)

// A Place is where a tensor of a checkpoint is in a GGUF file.
type Place struct {
	Name    string // "" where llama.cpp has no use for it
	HeadDim int    // rows of each head in the order of interleaved rotation; 0: rows as they are
	Experts int    // the tensor is one of so many, in a tensor of all experts of a layer; 0: it is by itself
	Expert  int    // which of them
	F32     bool   // llama.cpp takes its values in F32 alone
}

// unused matches tensors that llama.cpp computes itself.
var unused = regexp.MustCompile(`\.rotary_emb\.inv_freq$`)

// Place returns where a tensor goes. It fails where llama.cpp has no tensor like it.
func (m *Model) Place(name string, shape []int64) (Place, error) {
	if unused.MatchString(name) {
		return Place{}, nil
	}
	if p, ok, err := m.placeExpert(name); ok || err != nil {
		return p, err
	}
	known, ok := translate(name, outside, m.architecture.inLayer(), layerName, "blk.%s.%s", 0)
	if !ok {
		return Place{}, fmt.Errorf("tensor %s: llama.cpp's %s has no such tensor: leave it out of the checkpoint, or choose another convention", name, m.architecture.name)
	}
	p := Place{Name: known, HeadDim: m.headDim(name), F32: isRouter(known)}
	if p.HeadDim > 0 && (len(shape) == 0 || shape[0]%int64(p.HeadDim) != 0) {
		return Place{}, fmt.Errorf("tensor %s: shape %v is not heads of %d rows, as %s has it", name, shape, p.HeadDim, "config.json")
	}
	return p, nil
}

// headDim returns the rows of a head where those of a tensor are in another order.
func (m *Model) headDim(name string) int {
	if m.architecture.permuted && (strings.Contains(name, ".self_attn.q_proj.") || strings.Contains(name, ".self_attn.k_proj.")) {
		return m.config.HeadDim
	}
	return 0
}

// Row returns the row of the GGUF tensor that row r of the checkpoint's becomes.
// Transformers rotates element i of a head with element i+d/2, llama.cpp's llama
// neighbors: its heads have rows 0, d/2, 1, d/2+1, …
func (p Place) Row(r int) int {
	d := p.HeadDim
	if d == 0 {
		return r
	}
	i := r % d
	return r - i + i%(d/2)*2 + i/(d/2)
}

// Source returns the row of the checkpoint's tensor that row r of the GGUF tensor
// was: the inverse of Row.
func (p Place) Source(r int) int {
	d := p.HeadDim
	if d == 0 {
		return r
	}
	i := r % d
	return r - i + i%2*(d/2) + i/2
}

// inLayer returns the names of a layer's modules.
func (a architecture) inLayer() [][2]string {
	if a.experts == nil {
		return inLayer
	}
	return slices.Concat(inLayer, a.experts.beside)
}

// original returns what the checkpoint called a tensor of a GGUF file; ok is false
// where it had none like it.
func (a architecture) original(name string) (string, bool) {
	return translate(name, outside, a.inLayer(), blockName, "model.layers.%s.%s", 1)
}

// translate replaces the module of a tensor's name by what the other column of
// the tables has.
func translate(name string, outside, inLayer [][2]string, layer *regexp.Regexp, joined string, from int) (string, bool) {
	module, kind := name, ""
	for _, suffix := range []string{".weight", ".bias", scaleSuffix} {
		if m, ok := strings.CutSuffix(name, suffix); ok {
			module, kind = m, suffix
		}
	}
	table, format := outside, "%[2]s"
	number := ""
	if parts := layer.FindStringSubmatch(module); parts != nil {
		table, format, number, module = inLayer, joined, parts[1], parts[2]
	}
	for _, row := range table {
		if row[from] == module && kind != "" {
			return fmt.Sprintf(format, number, row[1-from]) + kind, true
		}
	}
	return "", false
}

// scaleSuffix ends the name of the global scale of an NVFP4 weight, after its module's.
const scaleSuffix = ".scale"

// ScaleName returns the name of the tensor of a weight's global scale.
func ScaleName(weight string) string { return strings.TrimSuffix(weight, ".weight") + scaleSuffix }
