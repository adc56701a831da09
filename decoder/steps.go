package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Layer is one layer of a model, for callers that run a model layer by layer. It computes under
// the Model.Inference of the time when it was made, and has the bits of Model.Logits:
//
//	x = m.Embed(tokens);  x = m.Layer(i).Forward(x, o) for all i;  m.Head(x, from, to)
//
// A Layer is not safe for concurrent use; the layers of a model share its buffers.
type Layer struct {
	layer    *layer
	scope    nn.Scope
	released *matrices // where Release puts the weights; nil: they stay
}

// Layers returns the number of layers.
func (m *Model) Layers() int { return len(m.layers) }

// Embed returns the residual stream before the first layer, tokens × hidden size.
func (m *Model) Embed(tokens []int32) (tensor.Dense, error) {
	return m.embed(&m.stepScopes().exempt, tokens)
}

// stepScopes returns the scopes of a pass over one layer.
func (m *Model) stepScopes() *scopes {
	s := m.Inference
	s.Inference, s.Pad = true, true
	return m.scopes(s)
}

// Layer returns layer i.
func (m *Model) Layer(i int) *Layer {
	return &Layer{layer: m.layers[i], scope: *m.layers[i].scope(m.stepScopes())}
}

// Forward returns the residual stream after the layer for x, that of one sequence. x is not changed.
func (l *Layer) Forward(x tensor.Dense, o nn.Observer) (tensor.Dense, error) {
	s := l.scope
	s.Observer = o
	y, _, err := l.layer.forward(&s, x, 1, nil)
	l.scope.ReuseWeights = true
	return y, err
}

// Linear returns the output of a linear layer for in. The module has the name that
// nn.Observer.Linear receives.
func (l *Layer) Linear(module string, in tensor.Dense) (tensor.Dense, error) {
	for _, p := range l.layer.projections() {
		if p.name == module {
			s := l.scope
			s.Observer = nn.Observer{}
			y, _, err := p.forward(&s, in)
			return y, err
		}
	}
	return tensor.Dense{}, fmt.Errorf("model: the layer has no linear layer %s", module)
}

// Quantize returns the layer with its weights quantized by q. Norms are shared with l. See
// Model.Quantize for activations.
func (l *Layer) Quantize(q quant.Quantizer, activations bool) (*Layer, error) {
	return l.replace(func(p *projection) (*frozen, error) {
		var input *activation
		if activations {
			input = &activation{format: activationFormat(q.Format)}
		}
		return p.quantize(&l.scope, q, input)
	})
}

// QuantizeBy returns the layer with the weights of some linear layers quantized: those for whose names, as nn.Observer.Linear receives
// them, by returns a function. It quantizes the weight of one module, outputs × inputs, and is given the amax of all modules of the
// linear layer, for formats with a global scale. Everything else is shared with l. Of the layers that it quantizes, inputs returns the
// format of weights whose activations are quantized, too, as [Layer.Quantize] does, and false if they are not; nil: none are.
func (l *Layer) QuantizeBy(by func(linear string) func(w tensor.Dense, with quant.With) (*quant.Tensor, error),
	inputs func(linear string) (quant.Format, bool)) (*Layer, error) {
	return l.replace(func(p *projection) (*frozen, error) {
		round := by(p.name)
		if round == nil {
			return nil, nil
		}
		var input *activation
		if inputs != nil {
			if f, ok := inputs(p.name); ok {
				input = &activation{format: activationFormat(f)}
			}
		}
		return p.quantizeBy(&l.scope, input, round)
	})
}

// replace returns the layer with the linear layers replaced for which quantize returns one.
func (l *Layer) replace(quantize func(*projection) (*frozen, error)) (*Layer, error) {
	copied := l.layer.clone()
	for _, p := range copied.projections() {
		if p.frozen != nil && p.frozen.quantized() {
			return nil, fmt.Errorf("%s: quantize: %w", p.name, ErrQuantized)
		}
		f, err := quantize(p)
		if err != nil {
			return nil, err
		}
		if f != nil {
			p.linear, p.frozen = nil, f
		}
	}
	return &Layer{layer: copied, scope: l.scope}, nil
}

// SetCache sets the format of keys and values (nn.Scope.Cache).
func (l *Layer) SetCache(f quant.Format) { l.scope.Cache = f }

// Head returns the logits of the tokens from ≤ token < to of the vocabulary for x, rows of the
// residual stream after the last layer. from is a multiple of 128, so that blocks of scales are
// whole.
func (m *Model) Head(x tensor.Dense, from, to int) (tensor.Dense, error) {
	if from < 0 || from%128 != 0 || to < from || to > m.plan.Vocabulary {
		return tensor.Dense{}, fmt.Errorf("model: head: got tokens %d to %d, want a multiple of 128, and at most %d, the vocabulary", from, to,
			m.plan.Vocabulary)
	}
	exempt := &m.stepScopes().exempt
	x, _, err := m.norm.Forward(exempt, x)
	if err != nil {
		return tensor.Dense{}, err
	}
	rows, err := m.head.rows(exempt, from, to)
	if err != nil {
		return tensor.Dense{}, err
	}
	y, _, err := rows.forward(exempt, x)
	if err == nil {
		m.scaleLogits(exempt, y)
	}
	return y, err
}

// rows returns the projection of output features from ≤ feature < to.
func (p *projection) rows(s *nn.Scope, from, to int) (*projection, error) {
	if p.linear == nil {
		f := &frozen{name: p.frozen.name}
		for _, part := range p.frozen.parts {
			f.parts = append(f.parts, frozenPart{weight: part.tensor().ViewRows(from, to), input: part.input})
		}
		if p.frozen.bias != nil {
			f.bias = p.frozen.bias[from:to]
		}
		return &projection{name: p.name, frozen: f}, nil
	}
	w := p.linear.Weight.Value
	weight, err := quant.Quantizer{Format: s.Recipe.Activations}.Rowwise(w.View(from, to, 0, w.Cols), quant.With{Threads: s.Threads})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return &projection{name: p.name, frozen: &frozen{name: p.name, parts: []frozenPart{{weight: weight}}}}, nil
}
