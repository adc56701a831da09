package format

import (
	"encoding/binary"
	"math"
)

// half has the constants of the codec for zeros and normal values of BF16 and FP16, whose
// fields are shifted ones of float32. Decode and EncodeWith convert subnormals, Inf and NaN.
type half struct {
	shift       int    // mantissa bits of float32 minus those of the format
	rebias      uint32 // float32 bias minus that of the format, shifted to the exponent field of float32
	first, last uint32 // float32 bits of the smallest and largest normal value
}

func (s *Scalar) half() half {
	return half{
		shift:  f32Mantissa - s.Mantissa,
		rebias: uint32(f32Bias-s.Bias) << f32Mantissa,
		first:  math.Float32bits(s.SmallestNormal()),
		last:   math.Float32bits(s.Max()),
	}
}

// DecodeSlice16 sets dst[i] to the value of code i of src, which holds little-endian codes of
// BF16 or FP16. src must have at least 2·len(dst) bytes.
func (s *Scalar) DecodeSlice16(dst []float32, src []byte) {
	h := s.half()
	src = src[:2*len(dst)]
	for i := range dst {
		code := binary.LittleEndian.Uint16(src[2*i:])
		sign := uint32(code>>15) << 31
		bits := uint32(code&0x7fff)<<(h.shift&31) + h.rebias
		switch {
		case bits-h.first <= h.last-h.first:
			dst[i] = math.Float32frombits(sign | bits)
		case bits == h.rebias:
			dst[i] = math.Float32frombits(sign)
		default:
			dst[i] = s.Decode(uint32(code))
		}
	}
}

// EncodeSlice16 sets the little-endian code i of dst to that of src[i] under c, for BF16 and
// FP16. c.Rounding must not be Stochastic. dst must have at least 2·len(src) bytes.
func (s *Scalar) EncodeSlice16(dst []byte, src []float32, c Conversion) {
	h := s.half()
	nearest := c.Rounding == NearestEven
	dst = dst[:2*len(src)]
	if h.rebias == 0 && nearest {
		s.encodeBF16(dst, src, h.last, c)
		return
	}
	for i, x := range src {
		bits := math.Float32bits(x) &^ f32Sign
		code := math.Float32bits(x) >> 31 << 15
		switch {
		case nearest && bits-h.first <= h.last-h.first: // only values above Max can round to Inf
			down := uint32(1)<<((h.shift-1)&31) - 1
			odd := bits >> (h.shift & 31) & 1
			code |= (bits + down + odd - h.rebias) >> (h.shift & 31)
		case bits != 0:
			code = s.EncodeWith(x, c, 0)
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(code))
	}
}

// encodeBF16 implements EncodeSlice16 for BF16 and rounding to nearest. BF16 has the exponents
// of float32, so all finite bits round like integers.
func (s *Scalar) encodeBF16(dst []byte, src []float32, last uint32, c Conversion) {
	var codes [4]uint32
	for len(src) >= len(codes) {
		beyond := false
		for i := range codes {
			bits := math.Float32bits(src[i])
			codes[i] = (bits + 0x7fff + bits>>16&1) >> 16
			beyond = beyond || bits&^f32Sign > last
		}
		if beyond {
			for i := range codes {
				codes[i] = s.EncodeWith(src[i], c, 0)
			}
		}
		binary.LittleEndian.PutUint64(dst, uint64(codes[0]|codes[1]<<16)|uint64(codes[2]|codes[3]<<16)<<32)
		dst, src = dst[2*len(codes):], src[len(codes):]
	}
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(s.EncodeWith(x, c, 0)))
	}
}
