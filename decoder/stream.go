package decoder

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// ReadLayers reads a model that is larger than memory: all but its layers, as Read does with
// LoadOptions.Inference. layer reads layer i, into the memory of layers that were released
// (Layer.Release); several goroutines may call it at the same time. Of the methods of m that compute,
// only Embed and Head work. The source must stay open while layers are read.
func ReadLayers(ctx context.Context, source *hf.Checkpoint, o LoadOptions) (m *Model, layer func(ctx context.Context, i int) (*Layer,
	error), err error) {
	o.Inference = true
	m, r, err := prepare(ctx, checkpoint.Read(source), o)
	if err == nil {
		err = r.read(ctx, m, []*projection{&m.head})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	r.released, r.pace = &matrices{}, streamPace
	return m, func(ctx context.Context, i int) (*Layer, error) { return r.layer(ctx, m, i) }, nil
}

// layer reads layer i of m.
func (r reader) layer(ctx context.Context, m *Model, i int) (*Layer, error) {
	l := m.Layer(i)
	l.layer, l.released = l.layer.clone(), r.released
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

// Release makes the memory of the weights of a layer of ReadLayers available to the layers that are read
// next. The layer must not be used any more. For other layers, Release does nothing.
func (l *Layer) Release() {
	if l.released == nil {
		return
	}
	var list []*quant.Tensor
	for _, p := range l.layer.all() {
		for _, part := range p.frozen.parts {
			if part.weight != nil {
				list = append(list, part.weight)
			}
		}
	}
	l.released.put(list)
	l.layer, l.released = nil, nil
}

// matrices are the weights of the layer that was released last. New memory for each layer would take the
// system as long to clear as the disk takes to read.
type matrices struct {
	sync.Mutex
	list []*quant.Tensor
}

func (m *matrices) put(list []*quant.Tensor) {
	m.Lock()
	defer m.Unlock()
	m.list = list
}

// take returns a matrix of a format and a shape, or nil.
func (m *matrices) take(f quant.Format, rows, cols int) *quant.Tensor {
	if m == nil {
		return nil
	}
	m.Lock()
	defer m.Unlock()
	i := slices.IndexFunc(m.list, func(t *quant.Tensor) bool {
		return t.Format.Name == f.Name && t.Rows() == rows && t.Cols() == cols
	})
	if i < 0 {
		return nil
	}
	t := m.list[i]
	m.list = slices.Delete(m.list, i, i+1)
	return t
}
