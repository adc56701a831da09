package decoder

import (
	"context"
	"fmt"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
)

// ReadLayers reads a model that is larger than memory: all but its layers, as Read does with
// LoadOptions.Inference. layer reads layer i; several goroutines may call it at the same time. Of
// the methods of m that compute, only Embed and Head work. The source must stay open while layers
// are read.
func ReadLayers(ctx context.Context, source *hf.Checkpoint, o LoadOptions) (m *Model, layer func(ctx context.Context, i int) (*Layer, error), err error) {
	o.Inference = true
	m, r, err := prepare(checkpoint.Read(source), o)
	if err == nil {
		err = r.read(ctx, m, []*projection{&m.head})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	return m, func(ctx context.Context, i int) (*Layer, error) { return r.layer(ctx, m, i) }, nil
}

// layer reads layer i of m.
func (r reader) layer(ctx context.Context, m *Model, i int) (*Layer, error) {
	l := m.Layer(i)
	l.layer = l.layer.clone()
	reads, err := r.freezeAll(ctx, l.layer.all())
	if err == nil {
		err = r.runReads(ctx, reads)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.model.Source.Path, err)
	}
	return l, nil
}

// Bytes returns the memory of the weights of the layer.
func (l *Layer) Bytes() int { return l.layer.weightBytes() }
