package gemm

import (
	"bytes"
	"math"

	"github.com/microscale-go/microscale/format"
)

// planVectorF32 is planVector of kernels that multiply float32. They take any A, as
// Dequantize returns it; the global scale of B is a factor of the product.
func (p *plan) planVectorF32(v *vectorKernel) (why string) {
	b := &p.b
	f := b.t.Format
	perLine := f.Scale == format.F32 && f.Block.Cols == 0
	switch {
	case v.dots == nil: // takes everything
		return ""
	case f.Element.StoredBits() != v.bits || v.tables(f.Element) == nil:
		return "the elements are not those of the kernel"
	case !f.Scaled() && v.scale == nil:
		return ""
	case !f.Scaled(), perLine && v.scale != format.E8M0, !perLine && (f.Scale != v.scale || f.Block.Cols != v.block):
		return "the scales are not those of the kernel"
	case f.Scale == format.F32:
		return b.fit()
	}
	b.hi = vectorLargest(f.Element)
	return ""
}

// vectorLargest returns the largest E8M0 code of a block whose values are finite, and
// which kernels of float32 can multiply by the unit of the elements.
func vectorLargest(e *format.Scalar) byte {
	return byte(int(format.E8M0.MaxCode()) - max(0, e.MaxExponent(), math.Ilogb(float64(vectorUnit(e)))))
}

// vectorUnit returns what kernels of float32 take the elements without: integers are
// multiples of it, and numbers of 8 and 6 bits are float16 there, whose bias is greater.
func vectorUnit(e *format.Scalar) float32 {
	switch bits := e.StoredBits(); {
	case e.Integer:
		return e.Smallest()
	case bits == 8 || bits == 6:
		return float32(math.Ldexp(1, format.FP16.Bias-e.Bias))
	}
	return 1
}

// vectorNumbers reports whether no element of line l is a NaN that kernels of float32
// take for a number: of 8 bits the code of ones.
func (s *side) vectorNumbers(l int) bool {
	e := s.t.Format.Element
	if e.StoredBits() != 8 || e.Integer {
		return true
	}
	const ones, sign = 0x7f, 0x80
	line := s.t.Codes[l*s.t.LineBytes() : (l+1)*s.t.LineBytes()]
	return bytes.IndexByte(line, ones) < 0 && bytes.IndexByte(line, ones|sign) < 0
}

// arrangeF32 sets x to values in the order in which kernels of float32 have the codes
// of a vector: of those of 16 bits the even ones, then the odd ones; of those of 4 bits
// the first of each eight, then the second, and so on, where a vector has a lane for every
// code; and else of each 32, which are 128 bits of it, the first 16, then the others, and of
// each four of these the first, the third, the second, the fourth.
func (v *vectorKernel) arrangeF32(x []uint32, values []float32) {
	switch n := v.lanes; v.bits {
	case 16:
		for c := 0; c < len(x); c += 2 * n {
			for i := range n {
				x[c+i], x[c+n+i] = math.Float32bits(values[c+2*i]), math.Float32bits(values[c+2*i+1])
			}
		}
	case 4:
		for c := 0; c < len(x); c += 8 * n {
			for i := range 8 * n {
				to, lane := i%8, i/8 // to: of the eight vectors
				if n < 1<<v.bits {
					to, lane = i%32/16*4+i%2*2+i%4/2, i/32*4+i%16/4
				}
				x[c+to*n+lane] = math.Float32bits(values[c+i])
			}
		}
	default:
		for i, value := range values {
			x[i] = math.Float32bits(value)
		}
	}
}
