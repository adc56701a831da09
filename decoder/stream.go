package decoder

import (
	"context"
	"fmt"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
)

// A LayerReader reads the layers of a model one at a time, for models that are larger than memory.
type LayerReader struct {
	model  *Model
	reader reader
}

// ReadLayers reads the embedding, the head and the norms of a checkpoint as Read does with
// LoadOptions.Inference. The source must stay open while layers are read.
func ReadLayers(ctx context.Context, source *hf.Checkpoint, o LoadOptions) (*LayerReader, error) {
	o.Inference = true
	m, r, err := prepare(checkpoint.Read(source), o)
	if err == nil {
		err = r.read(ctx, m, []*projection{&m.head})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	return &LayerReader{m, r}, nil
}

// Model returns the model without its layers: of its methods that compute, only Embed and Head work.
func (r *LayerReader) Model() *Model { return r.model }

// Layer reads layer i. Several goroutines may read layers at the same time.
func (r *LayerReader) Layer(ctx context.Context, i int) (*Layer, error) {
	l := r.model.Layer(i)
	l.layer = l.layer.clone()
	for _, p := range l.layer.all() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.reader.freeze(p); err != nil {
			return nil, fmt.Errorf("%s: %w", r.reader.model.Source.Path, err)
		}
	}
	return l, nil
}

// Bytes returns the memory of the weights of the layer.
func (l *Layer) Bytes() int { return l.layer.weightBytes() }
