package evaluation

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A stack is a checkpoint as an windows.Stack.
type stack struct {
	*decoder.Model
	layers []*layer                                                 // in memory
	read   func(ctx context.Context, i int) (*decoder.Layer, error) // nil if layers are in memory
	source *hf.Checkpoint
	cache  quant.Format // of keys and values
	digest string       // see content; "" before its first call
	stderr io.Writer    // progress of content; nil: none
}

// openStack opens a checkpoint. With stream, it leaves the layers to be read by Layer. The caller closes the
// stack.
func openStack(ctx context.Context, path string, o decoder.LoadOptions, threads int, stream bool) (*stack, error) {
	source, err := input.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &stack{source: source}
	if stream {
		s.Model, s.read, err = decoder.ReadLayers(ctx, source, o)
	} else {
		s.Model, err = decoder.Read(ctx, source, o)
	}
	if err != nil {
		return nil, errors.Join(show.Interrupted(err, "nothing was measured"), source.Close())
	}
	s.Inference.Threads = threads
	if !stream {
		for i := range s.Layers() {
			s.layers = append(s.layers, &layer{s.Model.Layer(i)})
		}
	}
	return s, nil
}

// lower quantizes the head, and keys and values. Zero formats keep them as they are.
func (s *stack) lower(head quant.Quantizer, cache quant.Format) error {
	s.cache = cache
	if head.Format.Element == nil {
		return nil
	}
	m, err := s.WithHead(head, decoder.Inputs{})
	s.Model = m
	return err
}

// linears returns the linear layers whose inputs are calibrated.
func (s *stack) linears() (layers [][]calibration.Linear) {
	for i := range s.Layers() {
		var list []calibration.Linear
		for _, l := range s.LinearModules(i) {
			list = append(list, calibration.Linear{Name: l.Name, Width: l.In, Rows: l.Out, Modules: l.Modules, Kind: l.Kind, Stream: l.Stream})
		}
		layers = append(layers, list)
	}
	return layers
}

// lowerInputs gives linear layers the formats to which clients quantize the inputs of all their modules.
func lowerInputs(layers [][]calibration.Linear, formats map[string]string) (err error) {
	for _, list := range layers {
		for i := range list {
			l := &list[i]
			name := formats[l.Modules[0]]
			if name == "" || slices.ContainsFunc(l.Modules, func(module string) bool { return formats[module] != name }) {
				continue
			}
			if l.Activations, err = quant.Lookup(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes the checkpoint.
func (s *stack) Close() error { return s.source.Close() }

// Layer returns layer i.
func (s *stack) Layer(ctx context.Context, i int, _ windows.Layer) (windows.Layer, error) {
	if s.read == nil {
		s.layers[i].SetCache(s.cache)
		return s.layers[i], nil
	}
	l, err := s.read(ctx, i)
	if err == nil {
		l.SetCache(s.cache)
	}
	return &layer{l}, err
}

// Head returns the head of the model at the positions after the layers, x.
func (s *stack) Head(x tensor.Dense) (windows.Head, error) {
	return func(from, to int) (tensor.Dense, error) { return s.Model.Head(x, from, to) }, nil
}

// A layer is a decoder.Layer as an windows.Layer.
type layer struct{ *decoder.Layer }

// Forward returns the output of the layer and shows it to watch.
func (l *layer) Forward(x tensor.Dense, watch windows.Watch) (tensor.Dense, error) {
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

// Apply returns the output of one linear layer.
func (l *layer) Apply(linear string, in tensor.Dense) (tensor.Dense, error) {
	return l.Linear(linear, in)
}

// A formatStack is a model whose layers are quantized from the original when they are first used.
// Embedding, norms and head are those of the original, unless lower changes the head.
type formatStack struct {
	*stack      // the original with the head and the cache of the model
	quantizer   quant.Quantizer
	activations bool
	keep        bool // quantize each layer once
	kept        []*layer
}

// newFormatStack returns a model in a format by the profile that convert uses for it.
func newFormatStack(original *stack, f quant.Format, activations, keep bool) (*formatStack, error) {
	q, err := profile.For(f).Quantizer(f)
	copied := *original // its head and cache differ
	return &formatStack{&copied, q, activations, keep, make([]*layer, original.Layers())}, err
}

// Layer returns layer i with quantized linear layers.
func (s *formatStack) Layer(_ context.Context, i int, original windows.Layer) (windows.Layer, error) {
	if s.kept[i] != nil {
		return s.kept[i], nil
	}
	low, err := original.(*layer).Quantize(s.quantizer, s.activations)
	if err != nil {
		return nil, err
	}
	low.SetCache(s.cache)
	l := &layer{low}
	if s.keep {
		s.kept[i] = l
	}
	return l, nil
}
