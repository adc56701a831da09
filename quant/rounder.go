package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// A Rounder rounds elements under the scales that a tensor has, as Rowwise would, one at a time: for
// methods that choose the codes of a row one after another. Several goroutines may use it.
type Rounder struct {
	q      Quantizer
	t      *Tensor
	global global
	factor factor    // of BF16 scales, but for its value, the scale
	values []float32 // by code
}

// Rounder returns the Rounder of t, which q made. It returns an error unless t is rowwise, has scales of one
// byte or in BF16, and q rounds to nearest without a transform.
func (q Quantizer) Rounder(t *Tensor) (*Rounder, error) {
	switch {
	case !t.Format.same(q.Format) || t.Direction != Rowwise || !q.Format.ByteScales() && q.Format.Scale != format.BF16 ||
		q.Format.Block.Rows != 1:
		return nil, fmt.Errorf("rounder of %s: got a %s tensor of %s, want a rowwise one, in a format with a scale of one byte or in BF16 "+
			"for each block of a row", q.Format, t.Direction, t.Format)
	case q.Rounding == format.Stochastic || q.Hadamard:
		return nil, fmt.Errorf("rounder of %s: stochastic rounding and the Hadamard transform are not supported", q.Format)
	}
	r := &Rounder{q: q, t: t, values: make([]float32, 1<<q.Format.Element.Bits())}
	if q.Format.Global {
		r.global = arithmetics[q.Arithmetic].global(t.Amax, q.Format.Element.Max(), q.top())
		if r.global.decode != t.Global {
			return nil, fmt.Errorf("rounder of %s: the tensor has the global scale %g, its amax gives %g: another quantizer made it", q.Format,
				t.Global, r.global.decode)
		}
	}
	if q.Format.Scale == format.BF16 {
		_, r.factor = q.floatScale(1)
	}
	for code := range r.values {
		r.values[code] = q.Format.Element.Decode(uint32(code))
	}
	return r, nil
}

// Round returns the code of x in a row and column of the tensor, and the value of that code.
func (r *Rounder) Round(row, col int, x float32) (code byte, value float32) {
	var scale blockScale
	if at := row*r.t.scaleCols() + blockIndex(col, r.q.Format.Block.Cols); r.t.Scales32 != nil {
		scale = blockScale{value: r.t.Scales32[at], factor: r.factor}
		scale.factor.value = scale.value
	} else {
		scale = r.q.byteScale(r.t.Scales[at], r.global)
	}
	scaled := scale.apply(x)
	codes := [1]byte{byte(r.q.Format.Element.EncodeWith(scaled, r.q.conversion(), 0))}
	r.q.dropNegativeZeros(codes[:], []float32{scaled})
	return codes[0], float32(scale.value * r.values[codes[0]])
}

// SetRow stores the codes of a row, one to a byte.
func (r *Rounder) SetRow(row int, codes []byte) {
	padded := make([]byte, r.t.paddedCols())
	copy(padded, codes)
	r.q.Format.Element.Join(r.t.row(row), padded)
}
