package decoder

import (
	"reflect"

	"github.com/microscale-go/microscale/internal/checkpoint"
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
// dtype, and otherwise in F32.
func (r *reader) codes(w *checkpoint.Weight, tile checkpoint.Tile) (*quant.Tensor, error) {
	if w.Quantized() {
		return w.ReadDecoded(tile)
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
