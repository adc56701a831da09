package gemm

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/microscale-go/microscale/format"
)

// planVectorF32 is planVector for float32 kernels. They support any A, with the values that
// Dequantize returns. The global scale of B multiplies the product.
func (p *plan) planVectorF32(v *vectorKernel) (why string) {
	b := &p.b
	f := b.t.Format
	perRow := f.Scale == format.F32 && f.Block.Cols == 0
	switch {
	case v.generic():
		return ""
	case f.Element.StoredBits() != v.bits || v.tables(f.Element) == nil:
		return "unsupported element format"
	case !f.Scaled() && v.scale == nil:
		return ""
	case !f.Scaled(), perRow && v.scale != format.E8M0, !perRow && (f.Scale != v.scale || f.Block.Cols != v.block):
		return "unsupported scales"
	case f.Scale == format.F32:
		return b.fit()
	}
	if v.amplify > 0 && !p.a.below(math.Ldexp(1, math.MaxInt8-v.amplify)) {
		return "an element of a is too large, or a has a format other than bf16 and f32"
	}
	b.hi = vectorMaxScale(f.Element)
	return ""
}

// below reports whether the elements of a tensor in BF16 or float32 are below a power of two in magnitude.
func (s *side) below(limit float64) bool {
	const words, ones = 0x0001000100010001, 0x7fff7fff7fff7fff // upper halves of float32 numbers are BF16 numbers
	mask := uint64(ones)
	switch s.t.Format.Element {
	case format.BF16:
	case format.F32:
		mask &= 0xffff0000ffff0000
	default:
		return false
	}
	add := (0x8000 - uint64(math.Float32bits(float32(limit))>>16)) * words // numbers that are not below reach the top bit
	i, codes := 0, s.t.Codes
	for ; i+8 <= len(codes); i += 8 {
		if (binary.LittleEndian.Uint64(codes[i:])&mask+add)&^ones != 0 {
			return false
		}
	}
	var rest [8]byte
	copy(rest[:], codes[i:])
	return (binary.LittleEndian.Uint64(rest[:])&mask+add)&^ones == 0
}

// vectorMaxScale returns the largest E8M0 code of a block that float32 kernels support: its
// values and the product of its scale and vectorUnit are finite.
func vectorMaxScale(e *format.Scalar) byte {
	return byte(int(format.E8M0.MaxCode()) - max(0, e.MaxExponent(), math.Ilogb(float64(vectorUnit(e)))))
}

// vectorUnit returns the factor that float32 kernels leave out of the elements: the unit of
// integers, and for 8 and 6 bits, which are decoded as float16, the power of two by which the
// exponent biases differ.
func vectorUnit(e *format.Scalar) float32 {
	switch bits := e.StoredBits(); {
	case e.Integer:
		return e.Smallest()
	case bits == 8 || bits == 6:
		return float32(math.Ldexp(1, format.FP16.Bias-e.Bias))
	}
	return 1
}

// vectorNumbers reports whether row l has no NaN that float32 kernels decode as a number: the
// 8-bit code of all ones.
func (s *side) vectorNumbers(l int) bool {
	e := s.t.Format.Element
	if e.StoredBits() != 8 || e.Integer {
		return true
	}
	const ones, sign = 0x7f, 0x80
	row := s.t.Codes[l*s.t.RowBytes() : (l+1)*s.t.RowBytes()]
	return bytes.IndexByte(row, ones) < 0 && bytes.IndexByte(row, ones|sign) < 0
}

// arrangeF32 sets x to values in the order in which float32 kernels decode a vector of codes:
//
//   - 16-bit codes: the even ones, then the odd ones;
//   - 4-bit codes, if a vector has a lane for each of the 16 codes: of each eight the first,
//     then the second, and so on;
//   - 4-bit codes otherwise: of each 32, which are 128 bits, the first 16, then the others;
//     of each four of these the first, the third, the second, the fourth;
//   - 4-bit codes that are interleaved: of each eight 0, 4, 2, 6, 1, 5, 3 and 7, or with four lanes the even ones, then the odd ones;
//   - 8- and 6-bit codes: unchanged, times a power of two.
func (v *vectorKernel) arrangeF32(x []uint32, values []float32) {
	if v.interleaved != nil && v.bits == 4 {
		half, quarter := 4, 2 // from a position to the next, and to the one after that
		if v.lanes == 4 {
			half, quarter = 2, 4
		}
		for i := range x {
			x[i] = math.Float32bits(values[i&^7+i%8/4+i%4/2*quarter+i%2*half])
		}
		return
	}
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
				to, lane := i%8, i/8 // to: which of the eight vectors
				if n < 1<<v.bits {
					to, lane = i%32/16*4+i%2*2+i%4/2, i/32*4+i%16/4
				}
				x[c+to*n+lane] = math.Float32bits(values[c+i])
			}
		}
	default:
		factor := float32(math.Ldexp(1, v.amplify))
		for i, value := range values {
			x[i] = math.Float32bits(value * factor)
		}
	}
}
