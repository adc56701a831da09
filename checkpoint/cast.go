package checkpoint

import (
	"github.com/microscale-go/microscale/quant"
)

// Cast returns the tensors that store a quantized weight in c after a cast to format f. number is what c stores for its
// global scale. A Static scheme needs a scale of its activations: given, or that of the file or its metadata if given is nil. c must
// support f and the weight.
func (w *Weight) Cast(c *Convention, f quant.Format, number float32, given *float32) []Stored {
	to := c.scheme(f)
	stored := c.Stored(f, w.Name, w.Shape)
	for i := range stored {
		if stored[i].Part == Global {
			stored[i].Value = GlobalBytes(number)
		}
	}
	if to.activations == Static {
		scale := c.StoredInput(f, w.Name, 1)
		kept := w.Kept()
		if own, d, ok := w.input(); ok && given == nil {
			scale.Value = GlobalBytes(kept.inputs().carry(own, d, to.inputScale))
		} else if given != nil {
			scale.Value = GlobalBytes(to.inputScale.stored(*given))
		}
		stored = append(stored, scale)
	}
	return stored
}

// GlobalIn returns the number that c stores for the global scale of the weight in format f.
func (w *Weight) GlobalIn(c *Convention, f quant.Format) float32 {
	kept := w.Kept()
	return kept.globals().carry(w.stored, w.scheme.direction, c.scheme(f).direction)
}

// ReadFor is ReadCodes with the decode scales that clients of c compute for the weight as they compute those of f.
func (w *Weight) ReadFor(c *Convention, f quant.Format, t Tile) (*quant.Tensor, error) {
	q, err := w.ReadCodes(t)
	if err != nil {
		return nil, err
	}
	return c.scheme(f).decoded(q, w.GlobalIn(c, f)), nil
}

// GlobalNumber returns the number that the convention stores for a global scale of f.
func (c *Convention) GlobalNumber(f quant.Format, scale float32) float32 {
	return c.scheme(f).direction.stored(scale)
}

// ReadsGlobal reports whether clients of the convention read a global scale of f.
func (c *Convention) ReadsGlobal(f quant.Format) bool { return f.Global && c.scheme(f).bare == "" }

// Levels returns the decode scale of every code of the block scales of f, one byte each, as clients compute it with
// a stored number of the global scale.
func (c *Convention) Levels(f quant.Format, number float32) (levels []float32, err error) {
	const codes = 1 << 8
	t, err := quant.NewTensor(f, max(1, f.Block.Rows), codes*f.Block.Cols)
	if err != nil {
		return nil, err
	}
	for code := range codes {
		t.Scales[code] = byte(code)
	}
	if t.Global = 1; f.Global {
		t.Global = c.scheme(f).direction.global(number)
	}
	levels = make([]float32, codes)
	c.Decoded(t, number).RowScales(levels, 0)
	return levels, nil
}
