package decoder

import (
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A projection is a linear layer that can be trained, or, if linear is nil, one whose weights stay as
// they are stored. Before a model is complete it is neither.
type projection struct {
	name  string // of the module: of all parts together
	in    int
	bias  bool
	parts []part

	linear *nn.Linear
	frozen *frozen
	scaled *nn.ScaledLinear // of a Student, in place of frozen
}

// A part is the rows of a projection that belong to one module of a checkpoint.
type part struct {
	module string
	out    int
	expert int // the module holds the matrices of several experts, of which this is one
	of     int // the number of experts; 0: the module is a matrix
}

// newProjection returns the projection of modules to the given numbers of rows. If there are fewer
// modules than numbers, the last module has the rest of the rows.
func newProjection(prefix, name string, in int, bias bool, modules []string, outs ...int) projection {
	p := projection{name: prefix + name, in: in, bias: bias}
	for i, module := range modules {
		out := outs[i]
		if i == len(modules)-1 {
			for _, n := range outs[i+1:] {
				out += n
			}
		}
		p.parts = append(p.parts, part{module: prefix + module, out: out})
	}
	return p
}

// newStacked returns the projection of one expert of a module that holds all.
func newStacked(prefix, name, module string, in, out int, bias bool, expert, of int) projection {
	return projection{name: prefix + name, in: in, bias: bias, parts: []part{{prefix + module, out, expert, of}}}
}

// weight returns the name and the shape of the tensor that holds the weights of a part.
func (q part) weight(in int) (name string, shape []int64) {
	if q.of > 0 {
		return q.module, []int64{int64(q.of), int64(q.out), int64(in)}
	}
	return q.module + ".weight", []int64{int64(q.out), int64(in)}
}

// biases returns the name and the shape of the tensor that holds the biases of a part.
func (q part) biases() (name string, shape []int64) {
	if q.of > 0 {
		return q.module + "_bias", []int64{int64(q.of), int64(q.out)}
	}
	return q.module + ".bias", []int64{int64(q.out)}
}

// train makes the layer one that can be trained, with weights of zero.
func (p *projection) train() {
	var parts []nn.Part
	for _, q := range p.parts {
		parts = append(parts, nn.Part{Name: q.module, Out: q.out})
	}
	p.linear = nn.NewFusedLinear(p.name, p.in, p.bias, parts...)
}

// stacked reports whether the weights are those of one expert in a tensor of all.
func (p *projection) stacked() bool { return p.parts[0].of > 0 }

func (p *projection) params() []*nn.Param {
	if p.linear == nil {
		return nil
	}
	return p.linear.Params()
}

// bytes returns the memory of the weights in the form in which they are multiplied.
func (p *projection) bytes() int {
	if p.linear != nil {
		rowwise, columnwise := p.linear.WeightBytes()
		return rowwise + columnwise
	}
	n := 0
	for _, part := range p.frozen.parts {
		n += part.bytes()
	}
	return n
}

// forward returns X·Wᵀ.
func (p *projection) forward(s *nn.Scope, x tensor.Dense) (y tensor.Dense, saved nn.Saved, err error) {
	switch {
	case p.linear != nil:
		y, saved, err = p.linear.Forward(s, x)
	case p.scaled != nil:
		y, saved, err = p.scaled.Forward(s, x)
	default:
		y, err = p.frozen.forward(s, x)
	}
	if err == nil && p.bias {
		s.ClearPadding(y)
	}
	if err == nil && s.Inference && s.Observer.Linear != nil {
		s.Observer.Linear(p.name, x, y)
	}
	return y, saved, err
}

// backward returns the gradient of the input for dy, that of the output, and adds that of what is trained.
func (p *projection) backward(s *nn.Scope, saved nn.Saved, dy tensor.Dense) (tensor.Dense, error) {
	if p.scaled != nil {
		return p.scaled.Backward(s, saved, dy)
	}
	return p.linear.Backward(s, saved, dy)
}

// projections returns all linear layers.
func (m *Model) projections() []*projection {
	var list []*projection
	for _, l := range m.layers {
		list = append(list, l.all()...)
	}
	return append(list, &m.head)
}

// Quantized reports whether the model has weights in a block format.
func (m *Model) Quantized() bool {
	for _, p := range m.projections() {
		if p.frozen != nil && p.frozen.quantized() {
			return true
		}
	}
	return false
}

// trainable returns an error if the model cannot be trained.
func (m *Model) trainable() error {
	if m.Quantized() {
		return ErrQuantized
	}
	if err := m.plan.Trainable(); err != nil {
		return err
	}
	for _, p := range m.projections() {
		if p.linear == nil {
			return errors.New("the model was loaded for inference")
		}
	}
	return nil
}

// Quantize returns the model with the weights of its layers quantized by q. With activations, the
// inputs of these layers are quantized to the same format, each token with its own scales. Embedding,
// norms, routers, head and exempt layers are shared with m.
func (m *Model) Quantize(q quant.Quantizer, activations bool, threads int) (*Model, error) {
	if m.Quantized() {
		return nil, fmt.Errorf("model: quantize: %w", ErrQuantized)
	}
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		return nil, err
	}
	scope := nn.Scope{Recipe: bf16, Threads: threads}
	c := *m
	c.pool = new(nn.Pool)
	c.layers = make([]*layer, len(m.layers))
	for i, l := range m.layers {
		copied := l.clone()
		if !l.exempt {
			for _, p := range copied.projections() {
				var input *activation
				if activations {
					input = &activation{format: activationFormat(q.Format)}
				}
				if p.frozen, err = p.quantize(&scope, q, input); err != nil {
					return nil, err
				}
				p.linear = nil
			}
		}
		c.layers[i] = copied
	}
	return &c, nil
}

// clone returns a copy of the layer whose projections can be replaced.
func (l *layer) clone() *layer {
	copied := *l
	if l.latent != nil {
		x := *l.latent
		copied.latent = &x
	}
	if l.experts != nil {
		x := *l.experts
		x.each = slices.Clone(x.each)
		if x.shared != nil {
			shared := *x.shared
			x.shared = &shared
		}
		copied.experts = &x
	}
	return &copied
}

// values returns a copy of the weights, and the biases or nil.
func (p *projection) values() (w tensor.Dense, bias []float32) {
	if p.linear != nil {
		if p.linear.Bias != nil {
			bias = p.linear.Bias.Value.Row(0)
		}
		return p.linear.Weight.Value.Clone(), bias
	}
	rows := 0
	for _, part := range p.parts {
		rows += part.out
	}
	w, rows = tensor.New(rows, p.in), 0
	for _, part := range p.frozen.parts {
		d := part.tensor().Dequantize(1)
		for i := range d.Rows {
			copy(w.Row(rows+i), d.Row(i))
		}
		rows += d.Rows
	}
	return w, p.frozen.bias
}

// quantize returns the quantized weights of a layer, rounded to the recipe's Activations first. Its
// parts have separate blocks and share a global scale, as in package convert. input quantizes their
// activations; nil does not.
func (p *projection) quantize(s *nn.Scope, q quant.Quantizer, input *activation) (*frozen, error) {
	return p.quantizeBy(s, input, func(w tensor.Dense, with quant.With) (*quant.Tensor, error) {
		if !q.Format.Global {
			with.Amax = nil
		}
		return q.Rowwise(w, with)
	})
}

// quantizeBy is quantize by a function, which gets the values of a part and the amax of all.
func (p *projection) quantizeBy(s *nn.Scope, input *activation, round func(tensor.Dense, quant.With) (*quant.Tensor, error)) (
	*frozen, error) {
	w, bias := p.values()
	s.Round(w)
	amax := quant.Amax(w, s.Threads)
	f := &frozen{name: p.name, bias: bias}
	rows := 0
	for _, part := range p.parts {
		t, err := round(w.View(rows, rows+part.out, 0, w.Cols), quant.With{Threads: s.Threads, Amax: &amax})
		if err != nil {
			name, _ := part.weight(p.in)
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		f.parts = append(f.parts, frozenPart{weight: t, input: input})
		rows += part.out
	}
	return f, nil
}

// Linears returns the linear layers that recipes quantize, in the order of the computation.
// Those with frozen weights, which cannot be trained, are not among them.
func (m *Model) Linears() []*nn.Linear {
	var list []*nn.Linear
	for _, l := range m.layers {
		for _, p := range l.projections() {
			if p.linear != nil && !l.exempt {
				list = append(list, p.linear)
			}
		}
	}
	return list
}

// HoldWeights makes every linear layer that the recipe quantizes hold its weight quantized
// (nn.Linear.HoldWeight). Call it at the start and after every step of the optimizer, which updates
// the values of Params.
func (m *Model) HoldWeights(s *Scope) error {
	if err := m.trainable(); err != nil {
		return fmt.Errorf("model: hold weights: %w", err)
	}
	p := m.scopes(*s)
	for _, l := range m.Linears() {
		if err := l.HoldWeight(&p.quantized); err != nil {
			return err
		}
	}
	return nil
}

// SettleWeights replaces the master weights of layers that hold their weights quantized with the
// decoded values (nn.Linear.SettleWeight), which Save then writes. The model cannot be trained any
// more.
func (m *Model) SettleWeights(threads int) {
	for _, l := range m.layers {
		for _, p := range l.projections() {
			if p.linear != nil {
				p.linear.SettleWeight(threads)
			}
		}
	}
}
