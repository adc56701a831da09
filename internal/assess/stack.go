package assess

import (
	"context"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/evaluate"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A stack is a model in memory as an evaluate.Stack.
type stack struct {
	*decoder.Model
	layers []*layer
}

func newStack(m *decoder.Model) *stack {
	s := &stack{Model: m}
	for i := range m.Layers() {
		s.layers = append(s.layers, &layer{m.Layer(i)})
	}
	return s
}

func (s *stack) Layer(_ context.Context, i int, _ evaluate.Layer) (evaluate.Layer, error) {
	return s.layers[i], nil
}

func (s *stack) Head(x tensor.Dense) (evaluate.Head, error) {
	return func(from, to int) (tensor.Dense, error) { return s.Model.Head(x, from, to) }, nil
}

// A layer is a decoder.Layer as an evaluate.Layer.
type layer struct{ *decoder.Layer }

func (l *layer) Forward(x tensor.Dense, watch evaluate.Watch) (tensor.Dense, error) {
	o := nn.Observer{KeysValues: watch.Cache}
	var failed error
	if watch.Linear != nil {
		o.Linear = func(module string, in, out tensor.Dense) {
			if failed == nil {
				failed = watch.Linear(module, in, out)
			}
		}
	}
	y, err := l.Layer.Forward(x, o)
	if err == nil {
		err = failed
	}
	return y, err
}

func (l *layer) Apply(linear string, in tensor.Dense) (tensor.Dense, error) {
	return l.Linear(linear, in)
}

// A formatStack is a model whose layers are quantized from the original when they are first used.
// Embedding, norms and head are those of the original.
type formatStack struct {
	*stack      // the original
	quantizer   quant.Quantizer
	activations bool
	keep        bool // quantize each layer once
	kept        []*layer
}

// newFormatStack returns a model in a format by the profile that convert uses for it.
func newFormatStack(original *stack, f quant.Format, activations, keep bool) (*formatStack, error) {
	q, err := profile.For(f).Quantizer(f)
	return &formatStack{original, q, activations, keep, make([]*layer, original.Layers())}, err
}

func (s *formatStack) Layer(_ context.Context, i int, original evaluate.Layer) (evaluate.Layer, error) {
	if s.kept[i] != nil {
		return s.kept[i], nil
	}
	low, err := original.(*layer).Quantize(s.quantizer, s.activations)
	if err != nil {
		return nil, err
	}
	l := &layer{low}
	if s.keep {
		s.kept[i] = l
	}
	return l, nil
}
