package llama

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
)

// LoadOptions say what becomes of quantized weights.
type LoadOptions struct {
	Options

	// Activations quantizes the inputs of quantized linear layers as the clients of the
	// checkpoint do: by the scale that it stores, where it stores one and its scheme does
	// not ignore that, and otherwise every token by its own values. Keys and values are
	// quantized to FP8 where their scales are stored (k_scale, v_scale). Without
	// Activations, all of these are computed in BF16.
	Activations bool
}

// Load reads the directory of a LlamaForCausalLM. Weights that are quantized, by
// any convention of package checkpoint, stay as they are stored, and the model can
// be evaluated and not trained. What is no such checkpoint is refused in one line.
func Load(dir string, o LoadOptions) (*Model, error) {
	source, err := hf.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := load(source, o)
	if err := errors.Join(err, source.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}

func load(source *hf.Checkpoint, o LoadOptions) (*Model, error) {
	if source.Config == nil {
		return nil, fmt.Errorf("there is no %s, which says what the model is: give the directory of a LlamaForCausalLM", hf.ConfigName)
	}
	config, err := parseConfig(source.Config)
	if err != nil {
		return nil, err
	}
	r := reader{model: checkpoint.Read(source), options: o}
	if p := r.model.Problems; len(p) > 0 {
		return nil, errors.New(p[0].String())
	}
	if has := r.elements(); int64(config.Parameters()) > 2*has { // before memory is taken for them
		return nil, fmt.Errorf("the configuration is of a model of %d parameters, the checkpoint has %d", config.Parameters(), has)
	}
	m, err := newModel(config, o.Options)
	if err != nil {
		return nil, err
	}
	return m, r.read(m)
}

// ignored are tensors that are no weights: the frequencies of rotary embedding, which
// older checkpoints have.
var ignored = regexp.MustCompile(`\.self_attn\.rotary_emb\.inv_freq$`)

// A reader gives a model the weights of a checkpoint.
type reader struct {
	model   *checkpoint.Model
	options LoadOptions
}

// elements returns the number of elements of all weights.
func (r *reader) elements() int64 {
	n := int64(0)
	for _, w := range r.model.Weights {
		rows, cols := w.Matrix()
		n += int64(rows) * int64(cols)
	}
	return n
}

func (r *reader) read(m *Model) error {
	known := make(map[string]bool)
	for _, p := range m.Params() {
		known[p.Name] = true
		if err := r.check(p); err != nil {
			return err
		}
	}
	for _, w := range r.model.Weights {
		if _, ok := checkpoint.CacheOwner(w.Name); ok {
			continue // readCache reads it
		}
		if !known[w.Name] && !ignored.MatchString(w.Name) && !(m.Config.TieWordEmbeddings && w.Name == "lm_head.weight") {
			return fmt.Errorf("tensor %s is not one of a %s of this configuration", w.Name, architecture)
		}
	}
	projections := []*projection{&m.head}
	if m.Config.TieWordEmbeddings {
		projections = nil
	}
	for _, l := range m.layers {
		projections = append(projections, l.projections()...)
	}
	for _, p := range projections {
		if slices.ContainsFunc(p.params(), r.quantized) {
			if err := r.freeze(p); err != nil {
				return err
			}
		}
	}
	if err := r.readCache(m); err != nil {
		return err
	}
	for _, p := range m.Params() { // those that are not frozen
		stored, _ := r.model.Lookup(p.Name)
		d, err := stored.Read(0, p.Value.Rows)
		if err != nil {
			return err
		}
		for i := range d.Rows {
			copy(p.Value.Row(i), d.Row(i))
		}
	}
	return nil
}

// check reports a weight that is missing or has another shape.
func (r *reader) check(p *nn.Param) error {
	stored, ok := r.model.Lookup(p.Name)
	switch {
	case !ok:
		return fmt.Errorf("tensor %s is missing, which a %s of this configuration has with shape %v", p.Name, architecture, shape(p))
	case !slices.Equal(stored.Shape, shape(p)):
		return fmt.Errorf("tensor %s has the shape %v, where the configuration says %v", p.Name, stored.Shape, shape(p))
	case !stored.Dense():
		return fmt.Errorf("tensor %s has the dtype %s, which is not one of a weight", p.Name, stored.Dtype)
	}
	return nil
}

func (r *reader) quantized(p *nn.Param) bool {
	stored, _ := r.model.Lookup(p.Name)
	return stored.Quantized()
}

// freeze makes of p the codes of its weights. A part that is not quantized, beside
// others that are, is in BF16.
func (r *reader) freeze(p *projection) error {
	f := &frozen{name: p.linear.Name}
	for _, part := range p.params() {
		stored, _ := r.model.Lookup(part.Name)
		whole := checkpoint.Tile{To: part.Value.Rows, ToCol: part.Value.Cols}
		if !stored.Quantized() {
			d, err := stored.ReadTile(whole)
			if err != nil {
				return err
			}
			t, err := quant.Quantizer{Format: quant.BF16}.Rowwise(d, quant.With{})
			if err != nil {
				return err
			}
			f.parts = append(f.parts, frozenPart{weight: t})
			continue
		}
		t, err := stored.ReadDecoded(whole)
		if err != nil {
			return err
		}
		input, err := r.activation(stored)
		if err != nil {
			return err
		}
		if n := len(f.parts); n > 0 && reflect.DeepEqual(f.parts[n-1].input, input) {
			input = f.parts[n-1].input // one quantization for both
		}
		f.parts = append(f.parts, frozenPart{t, input})
	}
	*p = projection{frozen: f}
	return nil
}
