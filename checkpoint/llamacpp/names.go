package llamacpp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
)

// outside and inLayer map the module names of a checkpoint to those of llama.cpp. Names in
// inLayer follow "model.layers.N." and "blk.N.".
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

// A Place locates a tensor of a checkpoint in a GGUF file.
type Place struct {
	Name     string  // "" if llama.cpp ignores the tensor
	HeadDim  int     // rows of each head, which are reordered for interleaved rotation; 0: rows are unchanged
	Experts  int     // the number of matrices in the stacked tensor; 0: the tensor is not stacked
	Expert   int     // index of the matrix in the stacked tensor
	F32      bool    // llama.cpp reads its values in F32 only
	Unscaled bool    // llama.cpp reads no global scale of the weight
	Add      float32 // what the values of the file are above those of the checkpoint

	// Of a tensor of OpenRaw.
	Type  gguf.Type // in the file
	Names [2]string // further names of the weight: that of the checkpoint, and that of the stacked tensor; "" if there is none
}

// unused matches tensors that llama.cpp computes itself.
var unused = regexp.MustCompile(`\.rotary_emb\.inv_freq$`)

// Place returns the place of a tensor in the GGUF file. It returns an error if llama.cpp has no
// such tensor.
func (m *Model) Place(name string, shape []int64) (Place, error) {
	if m.raw != nil {
		return m.raw[name], nil
	}
	if unused.MatchString(name) || m.config.ExtraLayer(name) {
		return Place{}, nil
	}
	if p, ok, err := m.placeExpert(name); ok || err != nil {
		return p, err
	}
	known, ok := m.architecture.known(name)
	if !ok {
		return Place{}, fmt.Errorf("tensor %s: llama.cpp's %s has no such tensor: leave it out of the checkpoint, or choose another convention",
			name, m.architecture.Name)
	}
	p := Place{Name: known, HeadDim: m.headDim(name), F32: isRouter(known) || strings.HasSuffix(known, ".bias"),
		Add: m.architecture.above(known), Unscaled: m.architecture.ignoresScale(known)}
	if p.HeadDim > 0 && (len(shape) == 0 || shape[0]%int64(p.HeadDim) != 0) {
		return Place{}, fmt.Errorf("tensor %s: shape %v is not heads of %d rows, as %s has it", name, shape, p.HeadDim, "config.json")
	}
	return p, nil
}

// ignoresScale reports whether llama.cpp reads no global scale of a weight.
func (a architecture) ignoresScale(name string) bool {
	parts := blockName.FindStringSubmatch(name)
	return parts != nil && slices.Contains(a.Unscaled, strings.TrimSuffix(parts[2], ".weight"))
}

// headDim returns the rows of a head if the rows of the tensor are reordered; 0 otherwise.
func (m *Model) headDim(name string) int {
	if m.architecture.Permuted && (strings.Contains(name, ".self_attn.q_proj.") || strings.Contains(name, ".self_attn.k_proj.")) {
		return m.config.HeadDim
	}
	return 0
}

// Row returns the row of the GGUF tensor for row r of the checkpoint's tensor. Transformers
// rotates element i of a head with element i+d/2; llama.cpp rotates neighbors, so its heads
// have rows 0, d/2, 1, d/2+1, …
func (p Place) Row(r int) int {
	d := p.HeadDim
	if d == 0 {
		return r
	}
	i := r % d
	return r - i + i%(d/2)*2 + i/(d/2)
}

// Source is the inverse of Row: it returns the row of the checkpoint's tensor for row r of the
// GGUF tensor.
func (p Place) Source(r int) int {
	d := p.HeadDim
	if d == 0 {
		return r
	}
	i := r % d
	return r - i + i%2*(d/2) + i/2
}

// inLayer returns the module names of a layer. The first row of a name counts.
func (a architecture) inLayer() [][2]string {
	rows := slices.Concat(a.Modules, inLayer)
	if a.Experts != nil {
		rows = append(rows, a.Experts.Beside...)
	}
	return rows
}

// known returns the name in a GGUF file of a tensor of the checkpoint. ok is false if the tables lack it.
func (a architecture) known(name string) (_ string, ok bool) {
	if found, ok := rename(name, a.Tensors, layerName, "blk.%s.%s", 0); ok {
		return found, true
	}
	return translate(name, outside, a.inLayer(), layerName, "blk.%s.%s", 0)
}

// original returns the checkpoint's name of a tensor of a GGUF file. ok is false if the tables
// lack it.
func (a architecture) original(name string) (_ string, ok bool) {
	if found, ok := rename(name, a.Tensors, blockName, "model.layers.%s.%s", 1); ok {
		return found, true
	}
	return translate(name, outside, a.inLayer(), blockName, "model.layers.%s.%s", 1)
}

// rename maps the whole name of a tensor of a layer from column from of a table to the other column.
func rename(name string, table [][2]string, layer *regexp.Regexp, joined string, from int) (string, bool) {
	parts := layer.FindStringSubmatch(name)
	for _, row := range table {
		if parts != nil && row[from] == parts[2] {
			return fmt.Sprintf(joined, parts[1], row[1-from]), true
		}
	}
	return "", false
}

// translate maps the module in the name of a tensor from column from of the tables to the other
// column.
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

// scaleSuffix follows the module's name in the name of the global scale of an NVFP4 weight.
const scaleSuffix = ".scale"

// ScaleName returns the name of the global scale of a weight.
func ScaleName(weight string) string { return strings.TrimSuffix(weight, ".weight") + scaleSuffix }
