package decoder

import (
	"context"
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

// LoadOptions configures Load.
type LoadOptions struct {
	Options

	// Activations quantizes the inputs of quantized linear layers as the clients of the checkpoint
	// do: with the stored scale if there is one and the scheme uses it, otherwise each token with
	// its own scales. It quantizes keys and values to FP8 if their scales are stored (k_scale,
	// v_scale). Without Activations, all of these are in BF16.
	Activations bool
}

// Load reads a Hugging Face directory of a LlamaForCausalLM. Quantized weights, in any supported
// convention, stay as they are stored; such a model cannot be trained. Another architecture is an
// error that matches errors.ErrUnsupported. When ctx ends, Load returns its error after the current
// tensor.
func Load(ctx context.Context, dir string, o LoadOptions) (*Model, error) {
	source, err := hf.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := load(ctx, source, o)
	if err := errors.Join(err, source.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}

func load(ctx context.Context, source *hf.Checkpoint, o LoadOptions) (*Model, error) {
	if source.Config == nil {
		return nil, fmt.Errorf("%s is missing: want the directory of a %s", hf.ConfigName, architecture)
	}
	config, err := parseConfig(source.Config)
	if err != nil {
		return nil, err
	}
	r := reader{model: checkpoint.Read(source), options: o}
	if p := r.model.Problems; len(p) > 0 {
		return nil, errors.New(p[0].String())
	}
	if has := r.elements(); int64(config.Parameters()) > 2*has { // checked before memory is allocated
		return nil, fmt.Errorf("config.json describes %d parameters, but the checkpoint has %d", config.Parameters(), has)
	}
	m, err := newModel(config, o.Options)
	if err != nil {
		return nil, err
	}
	return m, r.read(ctx, m)
}

// ignored matches tensors that are not weights: the frequencies of rotary embedding in older
// checkpoints.
var ignored = regexp.MustCompile(`\.self_attn\.rotary_emb\.inv_freq$`)

// A reader loads the weights of a checkpoint into a model.
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

func (r *reader) read(ctx context.Context, m *Model) error {
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
			return fmt.Errorf("unexpected tensor %s: a %s of this configuration does not have it", w.Name, architecture)
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
		if err := ctx.Err(); err != nil {
			return err
		}
		if slices.ContainsFunc(p.params(), r.quantized) {
			if err := r.freeze(p); err != nil {
				return err
			}
		}
	}
	if err := r.readCache(m); err != nil {
		return err
	}
	for _, p := range m.Params() { // the parameters that are not frozen
		if err := ctx.Err(); err != nil {
			return err
		}
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

// check returns an error if a weight is missing or has another shape or dtype.
func (r *reader) check(p *nn.Param) error {
	stored, ok := r.model.Lookup(p.Name)
	switch {
	case !ok:
		return fmt.Errorf("tensor %s is missing, want shape %v", p.Name, shape(p))
	case !slices.Equal(stored.Shape, shape(p)):
		return fmt.Errorf("tensor %s: got shape %v, want %v by config.json", p.Name, stored.Shape, shape(p))
	case !stored.Dense():
		return fmt.Errorf("tensor %s: unsupported dtype %s", p.Name, stored.Dtype)
	}
	return nil
}

func (r *reader) quantized(p *nn.Param) bool {
	stored, _ := r.model.Lookup(p.Name)
	return stored.Quantized()
}

// freeze replaces p with the stored codes of its weights. A part that is not quantized is in BF16.
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
			input = f.parts[n-1].input // shared, so that the input is quantized once
		}
		f.parts = append(f.parts, frozenPart{t, input})
	}
	*p = projection{frozen: f}
	return nil
}
