package format

import "math"

// narrow implements EncodeWith with two tables and one addition, for formats of at most 8
// bits, rounding to nearest even and saturation of finite values.
//
// Let e be the exponent of x, or that of the smallest normal if it is larger. The float32 sum
//
//	±2^(e+23-Mantissa) + x
//
// has steps of 2^(e-Mantissa), the step of the format in that binade. So the addition rounds
// normals and subnormals as the format requires, and the low bits of the sum are the
// significand as an integer. The other bits depend only on the sign and exponent of x.
type narrow struct {
	binades [512]binade // by sign and exponent of x
	codes   [512]byte   // by sign and magnitude, saturated
}

// A binade has the constants for one sign and exponent.
type binade struct {
	anchor float32 // the power of two of the sum; Inf if every value saturates
	excess uint32  // bits of the sum minus excess = sign<<8 | magnitude
}

// tabled reports whether a row has tables for encoding. E8M0 has none: its codes have no significand. Nor has UE5M3:
// one more than its largest magnitude takes more than 8 bits.
func (s *Scalar) tabled() bool { return s.Bits() <= 8 && !s.NoZero && (!s.Unsigned || s.Bits() < 8) }

// makeNarrow computes the tables of a row.
func (s *Scalar) makeNarrow() *narrow {
	if !s.tabled() {
		return nil
	}
	const negative = 1 << 8
	n := &narrow{}
	for i := range n.binades {
		least, e := 1-s.Bias, i%negative-f32Bias
		sign := uint32(i / negative * f32Sign)
		anchor := sign | uint32(max(e, least)+f32Mantissa-s.Mantissa+f32Bias)<<f32Mantissa
		count := uint32(max(e-least, 0)) << s.Mantissa // codes of the binades below
		if e > s.MaxExponent() {
			anchor, count = sign|f32Inf, s.limit(i >= negative)
		}
		n.binades[i] = binade{math.Float32frombits(anchor), anchor - count - uint32(i/negative*negative)}
		n.codes[i] = byte(s.withSign(min(uint32(i%negative), s.limit(i >= negative)), i >= negative && !s.Unsigned))
	}
	return n
}

// EncodeSlice sets dst[i] to s.Encode(src[i]), one code per byte. The format must have at most 8
// bits, and dst at least as many elements as src.
func (s *Scalar) EncodeSlice(dst []byte, src []float32) { s.EncodeSliceWith(dst, src, Conversion{}) }

// EncodeSliceWith sets dst[i] to the code of src[i] under c, one code per byte. c.Rounding must
// not be Stochastic. The format must have at most 8 bits, and dst at least as many elements as
// src.
func (s *Scalar) EncodeSliceWith(dst []byte, src []float32, c Conversion) {
	dst = dst[:len(src)]
	if s.narrow == nil || c.Rounding != NearestEven || c.Overflow == NonSaturating {
		for i, x := range src {
			dst[i] = byte(s.EncodeWith(x, c, 0))
		}
		return
	}
	s.narrow.encode(dst, src)
	if maxBits(src) < f32Inf {
		return
	}
	for i, x := range src {
		if math.Float32bits(x)&^f32Sign >= f32Inf {
			dst[i] = byte(s.EncodeWith(x, c, 0))
		}
	}
}

// encode sets dst to the codes of src. Those of NaN and Inf are undefined.
func (n *narrow) encode(dst []byte, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		b := &n.binades[math.Float32bits(x)>>f32Mantissa]
		magnitude := math.Float32bits(b.anchor+x) - b.excess
		dst[i] = n.codes[magnitude%uint32(len(n.codes))]
	}
}

// maxBits returns the maximum of the bits of |x[i]|: those of the largest magnitude, or of a NaN
// if there is one, since its bits exceed those of Inf. It returns 0 for an empty slice.
func maxBits(x []float32) uint32 {
	var a, b, c, d uint32
	for ; len(x) >= 4; x = x[4:] {
		a = max(a, math.Float32bits(x[0])&^f32Sign)
		b = max(b, math.Float32bits(x[1])&^f32Sign)
		c = max(c, math.Float32bits(x[2])&^f32Sign)
		d = max(d, math.Float32bits(x[3])&^f32Sign)
	}
	for _, v := range x {
		a = max(a, math.Float32bits(v)&^f32Sign)
	}
	return max(a, b, c, d)
}

// DecodeSlice sets dst[i] to the value of src[i], one code per byte. The format must have at
// most 8 bits, and dst at least as many elements as src.
func (s *Scalar) DecodeSlice(dst []float32, src []byte) { s.DecodeSliceScaled(dst, src, 1) }

// DecodeSliceScaled sets dst[i] to scale times the value of src[i], rounded to float32. The
// format must have at most 8 bits, and dst at least as many elements as src.
func (s *Scalar) DecodeSliceScaled(dst []float32, src []byte, scale float32) {
	dst = dst[:len(src)]
	if len(s.decoded) == 256 {
		values := (*[256]float32)(s.decoded)
		for i, c := range src {
			dst[i] = scale * values[c]
		}
		return
	}
	mask := len(s.decoded) - 1
	for i, c := range src {
		dst[i] = scale * s.decoded[int(c)&mask]
	}
}
