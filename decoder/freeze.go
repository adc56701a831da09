package decoder

import (
	"context"
	"reflect"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/nn"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// quantized reports whether the weights of a part are in a block format.
func (r *reader) quantized(q part) bool {
	name, _ := q.weight(0)
	stored, _ := r.lookup(name)
	return stored.Quantized()
}

// freeze reads the weights of a projection as they are stored.
func (r *reader) freeze(p *projection) error {
	f := &frozen{name: p.name}
	for _, q := range p.parts {
		name, _ := q.weight(p.in)
		stored, _ := r.lookup(name)
		tile := checkpoint.Tile{From: q.expert * q.out, To: (q.expert + 1) * q.out, ToCol: p.in}
		t, err := r.codes(stored, tile)
		if err != nil {
			return err
		}
		var input *activation
		if stored.Quantized() {
			if input, err = r.activation(stored); err != nil {
				return err
			}
		}
		if n := len(f.parts); n > 0 && reflect.DeepEqual(f.parts[n-1].input, input) {
			input = f.parts[n-1].input // shared, so that the input is quantized once
		}
		f.parts = append(f.parts, frozenPart{weight: t, input: input})
		if p.bias {
			if f.bias, err = r.appendBias(f.bias, q); err != nil {
				return err
			}
		}
	}
	p.frozen = f
	return nil
}

// codes reads a tile of a weight: quantized ones as they are stored, others in BF16 if that is their
// dtype, and otherwise in F32. The inverse of a stored global scale is rounded to float32, as
// clients that multiply codes do; the quotients of ReadDecoded, which differ in the last bit, would
// be a float32 number for each block.
func (r *reader) codes(w *checkpoint.Weight, tile checkpoint.Tile) (*quant.Tensor, error) {
	if w.Quantized() || w.HasRowsBF16() {
		f := quant.BF16
		if w.Quantized() {
			f = w.Format
		}
		t, err := quant.NewTensor(f, tile.To-tile.From, tile.ToCol-tile.FromCol)
		if err != nil {
			return nil, err
		}
		if r.options.Inputs.Element != nil { // for products with few tokens
			memory.Huge(t.Codes)
		}
		if w.Quantized() {
			return t, w.ReadInto(t, tile)
		}
		_, _, err = w.ReadBF16(tile, t.Codes)
		return t, err
	}
	d, err := w.ReadTile(tile)
	if err != nil {
		return nil, err
	}
	dense := quant.F32
	if w.Dtype == safetensors.BF16 {
		dense = quant.BF16
	}
	return quant.Quantizer{Format: dense}.Rowwise(d, quant.With{})
}

// storeEmbedding keeps a table of BF16 as it is stored. A tied head shares it.
func (r *reader) storeEmbedding(m *Model) error {
	e := m.embedding
	w, _ := r.lookup(e.Weight.Name)
	if !r.options.Inference || !w.HasRowsBF16() {
		return nil
	}
	t, err := r.codes(w, checkpoint.Tile{To: m.plan.Vocabulary, ToCol: m.plan.Hidden})
	if err != nil {
		return err
	}
	m.embedding = &nn.Embedding{Name: e.Name, Stored: t}
	if m.plan.Tied {
		m.head.frozen = &frozen{name: m.head.name, parts: []frozenPart{{weight: t}}}
	}
	return nil
}

// freezeAll freezes projections, several at a time: one is reordered while another is read.
func (r *reader) freezeAll(ctx context.Context, projections []*projection) error {
	failed := make([]error, len(projections))
	parallel.For(len(projections), 1, readers, func(from, to int) {
		for i := from; i < to; i++ {
			p := projections[i]
			if failed[i] = ctx.Err(); failed[i] != nil || p.frozen != nil {
				continue
			}
			if failed[i] = r.freeze(p); failed[i] == nil && r.options.Inputs.Element != nil {
				failed[i] = p.optimize(r.options.Inputs, 1)
			}
		}
	})
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// readers is the number of goroutines that read weights: enough for several requests to a disk at
// a time.
const readers = 4

// readParam reads a parameter by tiles, so that there is no second copy of it.
func (r *reader) readParam(p *nn.Param) error {
	const tile = 1 << 22 // elements
	stored, _ := r.lookup(p.Name)
	step := max(1, tile/max(1, p.Value.Cols))
	failed := make([]error, (p.Value.Rows+step-1)/step)
	parallel.For(p.Value.Rows, step, readers, func(from, to int) {
		d, err := stored.Read(from, to)
		if err != nil {
			failed[from/step] = err
			return
		}
		for i := range d.Rows {
			copy(p.Value.Row(from+i), d.Row(i))
		}
	})
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// appendBias appends the biases of a part.
func (r *reader) appendBias(bias []float32, q part) ([]float32, error) {
	name, _ := q.biases()
	stored, _ := r.lookup(name)
	tile := checkpoint.Tile{To: 1, ToCol: q.out}
	if q.of > 0 {
		tile.From, tile.To = q.expert, q.expert+1
	}
	d, err := stored.ReadTile(tile)
	if err != nil {
		return nil, err
	}
	return append(bias, d.Row(0)...), nil
}
