package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A projection is a linear layer that can be trained, or, if linear is nil, one with quantized
// weights.
type projection struct {
	linear *nn.Linear
	frozen *frozen
}

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
		t := part.weight
		n += len(t.Codes) + len(t.Scales) + 4*len(t.Scales32)
	}
	return n
}

// name returns the name of the module.
func (p *projection) name() string {
	if p.linear != nil {
		return p.linear.Name
	}
	return p.frozen.name
}

// forward returns X·Wᵀ.
func (p *projection) forward(s *nn.Scope, x tensor.Dense) (y tensor.Dense, saved nn.Saved, err error) {
	if p.linear != nil {
		y, saved, err = p.linear.Forward(s, x)
	} else {
		y, err = p.frozen.forward(s, x)
	}
	if err == nil && s.Inference && s.Observer.Linear != nil {
		s.Observer.Linear(p.name(), x, y)
	}
	return y, saved, err
}

// Quantized reports whether the model has quantized weights, which cannot be trained.
func (m *Model) Quantized() bool {
	for _, l := range m.layers {
		for _, p := range l.projections() {
			if p.linear == nil {
				return true
			}
		}
	}
	return m.head.linear == nil
}

// Quantize returns the model with the weights of its layers quantized by q. With activations, the
// inputs of these layers are quantized to the same format, each token with its own scales. Embedding,
// norms, head and exempt layers are shared with m.
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
	c.pool = nn.Pool{}
	c.layers = make([]*layer, len(m.layers))
	for i, l := range m.layers {
		copied := *l
		if !l.exempt {
			for _, p := range copied.projections() {
				var input *activation
				if activations {
					input = &activation{format: activationFormat(q.Format)}
				}
				if p.frozen, err = freeze(&scope, p.linear, q, input); err != nil {
					return nil, err
				}
				p.linear = nil
			}
		}
		c.layers[i] = &copied
	}
	return &c, nil
}

// freeze returns the quantized weights of a layer, rounded to the recipe's Activations first. Its
// parts have separate blocks and share a global scale, as in package convert. input quantizes their
// activations; nil does not.
func freeze(s *nn.Scope, l *nn.Linear, q quant.Quantizer, input *activation) (*frozen, error) {
	w := l.Weight.Value.Clone()
	s.Round(w)
	amax := quant.Amax(w, s.Threads)
	f := &frozen{name: l.Name}
	rows := 0
	for _, p := range l.Params() {
		part := w.View(rows, rows+p.Value.Rows, 0, w.Cols)
		with := quant.With{Threads: s.Threads}
		if q.Format.Global {
			with.Amax = &amax
		}
		t, err := q.Rowwise(part, with)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		f.parts = append(f.parts, frozenPart{t, input})
		rows += p.Value.Rows
	}
	return f, nil
}

// Linears returns the linear layers that recipes quantize, in the order of the computation.
// Those with quantized weights, which cannot be trained, are not among them.
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
func (m *Model) HoldWeights(s *nn.Scope) error {
	if m.Quantized() {
		return fmt.Errorf("model: hold weights: %w", ErrQuantized)
	}
	quantized, _ := m.scopes(s)
	for _, l := range m.Linears() {
		if err := l.HoldWeight(quantized); err != nil {
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
