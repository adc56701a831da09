package quant

import (
	"fmt"
	"math"
	"sync"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// quantizeOne makes one copy of x.
func quantizeOne[M tensor.Dense | tensor.BF16](q Quantizer, x M, d Direction, with With) (*Tensor, error) {
	s, err := sourceOf(x)
	if err != nil {
		return nil, err
	}
	return q.quantize(s, d, with)
}

func (q Quantizer) quantize(x source, d Direction, with With) (*Tensor, error) {
	if err := q.checkCopy(x, d, with); err != nil {
		return nil, err
	}
	c := calls.Get().(*call)
	c.quantizer = q
	if q.Format.Scaled() {
		c.output.kernels = c.kernels
	}
	c.output.prepare(&c.quantizer, x, d, with)
	var outputs [2]*output
	outputs[d] = &c.output
	c.pipeline.run(x, outputs[Rowwise], outputs[Columnwise], with.Threads)
	t := c.output.t
	if q.Format.Scaled() {
		c.kernels = c.output.kernels
	}
	*c = call{kernels: c.kernels} // which keeps no memory of the caller
	calls.Put(c)
	return t, nil
}

// A call holds the variables of a call that makes one copy.
type call struct {
	quantizer Quantizer
	output    output
	pipeline  pipeline
	kernels   kernels // of the call before, for the same quantizer
}

var calls = sync.Pool{New: func() any { return new(call) }}

// checkCopy returns an error if q cannot quantize x.
func (q *Quantizer) checkCopy(x source, d Direction, with With) error {
	if err := q.check(with); err != nil {
		return err
	}
	rows, cols := x.rows, x.cols
	switch d {
	case Rowwise:
	case Columnwise:
		cols = rows
	default:
		return fmt.Errorf("quantizer of %s: got direction %d, want rowwise or columnwise", q.Format, uint8(d))
	}
	if q.Hadamard && cols%hadamardSize != 0 {
		return fmt.Errorf("quantizer of %s: the Hadamard transform: got %d elements along the blocks, want a multiple of %d", q.Format, cols,
			hadamardSize)
	}
	if with.Importance != nil && len(with.Importance) != cols {
		return fmt.Errorf("quantizer of %s: With.Importance: got %d values, want %d, one for each position along the blocks", q.Format,
			len(with.Importance), cols)
	}
	if c := with.Columns; c != nil && c.n() != x.cols {
		return fmt.Errorf("quantizer of %s: With.Columns: got %d columns, want %d", q.Format, c.n(), x.cols)
	}
	return with.checkInto(x, q.Format, d)
}

// checkInto returns an error if With.Into cannot hold x.
func (w With) checkInto(x source, f Format, d Direction) error {
	t := w.Into
	if t == nil {
		return nil
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("With.Into: %w", err)
	}
	if rows, cols := x.rows, x.cols; !t.Format.same(f) || t.Direction != d || t.Rows() != rows || t.Cols() != cols {
		return fmt.Errorf("With.Into: got a %s %s tensor of %d×%d, want %s %s of %d×%d",
			t.Direction, t.Format, t.Rows(), t.Cols(), d, f, rows, cols)
	}
	return t.checkApart(x.region())
}

// A blockScale is the scale of a block.
type blockScale struct {
	code   byte    // as it is stored: E8M0 and E4M3
	value  float32 // decode scale, times that of the tensor
	factor         // what elements are encoded with
}

// blockScale returns the scale of a block of the given amax, NaN aside: the twin of every
// scale kernel.
func (q *Quantizer) blockScale(amax float32, hasNaN bool, g global) blockScale {
	bits := math.Float32bits(amax)
	poison := hasNaN && q.NonFinite != Tolerate || bits == exponentMask && q.NonFinite == Poison
	switch q.Format.Scale {
	case format.E8M0:
		if poison {
			s := q.byteScale(e8m0NaN, g)
			if q.NonFinite == PoisonZero {
				s.factor = factor{value: float32(math.Inf(1)), divide: true}
			}
			return s
		}
		return q.byteScale(q.scaleCode(amax, g), g)
	case format.E4M3:
		s := q.byteScale(q.scaleCode(amax, g), g)
		if poison {
			s.code, s.poison = byte(scaleFormat.EncodeWith(float32(math.NaN()), format.Conversion{}, 0)), true
		}
		return s
	}
	decode, f := q.floatScale(amax)
	if poison {
		decode = float32(math.NaN())
	}
	f.poison = poison
	return blockScale{value: decode, factor: f}
}

// scaleCode returns the code of the E8M0 or E4M3 scale of a block with that amax, which is not NaN.
func (q *Quantizer) scaleCode(amax float32, g global) byte {
	if q.Format.Scale == format.E8M0 {
		return q.exponentCode(math.Float32bits(amax))
	}
	return arithmetics[q.Arithmetic].block(amax, q.Format.Element.Max(), g)
}

// floatScale returns the decode scale of a block of the given amax in a format with FP32 or BF16 scales, and its
// factor. Elements are divided by a BF16 scale, which is rounded.
func (q *Quantizer) floatScale(amax float32) (decode float32, f factor) {
	decode, f = arithmetics[q.Arithmetic].fp32(amax, q.Format.Element.HalfRange(), q.PowerOfTwo)
	if q.Format.Scale == format.BF16 {
		if decode = toBF16(decode); decode == 0 {
			decode = bf16Epsilon
		}
		f = factor{value: decode, divide: true, bf16: f.bf16}
	}
	return decode, f
}

// isSymmetric reports whether the largest element and the most negative one have the same magnitude, as kernels assume.
func isSymmetric(element *format.Scalar) bool { return element.HalfRange() == element.Max() }

// byteScale returns the scale of an E8M0 or E4M3 code.
func (q *Quantizer) byteScale(code byte, g global) blockScale {
	if q.Format.Scale == format.E8M0 {
		exponent := int(code) - format.E8M0.Bias
		return blockScale{code, exp2(exponent), factor{value: q.exponentFactor(code), poison: code == e8m0NaN}}
	}
	value := float32(scaleFormat.Decode(uint32(code)) * g.decode)
	return blockScale{code, value, arithmetics[q.Arithmetic].element(code, g)}
}

// typed returns the factor of a whole tensor for a source that is BF16 or not.
func (q *Quantizer) typed(f factor, narrow bool) factor {
	f.bf16 = f.bf16 || narrow && arithmetics[q.Arithmetic].typed
	return f
}

func (q *Quantizer) conversion() format.Conversion {
	return format.Conversion{Rounding: q.Rounding, NaN: q.ElementNaN}
}

// dropNegativeZeros replaces the codes of -0 that q does not keep. scaled are the
// elements over their scale, of which some may have become -0 before they are rounded.
func (q *Quantizer) dropNegativeZeros(codes []byte, scaled []float32) {
	if q.NegativeZero == KeepNegativeZero {
		return
	}
	for i, c := range codes {
		if q.Format.Element.Decode(uint32(c)) == 0 && (scaled[i] == 0 || q.NegativeZero == DropNegativeZero) {
			codes[i] = 0
		}
	}
}
