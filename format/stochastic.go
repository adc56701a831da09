package format

import "math"

// A draw has the constants of stochastic rounding for one exponent. With v the significand as
// an integer, the code is base + v / 2^shift, rounded up with a probability equal to the
// fraction.
type draw struct {
	hidden uint32 // the leading bit of v
	base   uint32
	shift  uint32 // 1 to 32; 0 if EncodeWith is needed
}

// makeDraws computes the draws of a row by exponent, following EncodeWith.
func (s *Scalar) makeDraws() *[256]draw {
	if !s.tabled() {
		return nil
	}
	d := &[256]draw{}
	for i := range f32Inf >> f32Mantissa {
		hidden, exponent := uint32(1<<f32Mantissa), i
		if i == 0 {
			hidden, exponent = 0, 1
		}
		e := exponent - f32Bias + s.Bias
		shift, base := f32Mantissa-s.Mantissa, 0
		switch {
		case exponent-f32Bias > s.MaxExponent(): // every v saturates
			base = int(s.limit(true)) // which the table of codes limits for positive values
		case s.Exponent == 0:
			shift += 1 - e
		case e > 1:
			base = (e - 1) << s.Mantissa
		default:
			shift += 1 - e
		}
		if shift <= 32 {
			d[i] = draw{hidden, uint32(base), uint32(shift)}
		}
	}
	return d
}

// EncodeSliceStochastic sets dst[i] to s.EncodeWith(src[i], c, random[i]) with c.Rounding set to
// Stochastic. The format must have at most 8 bits, and dst and random at least as many elements
// as src.
func (s *Scalar) EncodeSliceStochastic(dst []byte, src []float32, random []uint32, c Conversion) {
	c.Rounding = Stochastic
	dst, random = dst[:len(src)], random[:len(src)]
	if s.draws == nil || c.Overflow == NonSaturating {
		for i, x := range src {
			dst[i] = byte(s.EncodeWith(x, c, random[i]))
		}
		return
	}
	const magnitudes = uint32(len(s.narrow.codes) / 2)
	for i, x := range src {
		bits := math.Float32bits(x)
		d := &s.draws[bits>>f32Mantissa%256]
		if d.shift == 0 {
			dst[i] = byte(s.EncodeWith(x, c, random[i]))
			continue
		}
		v := uint64(bits&(1<<f32Mantissa-1)|d.hidden) + uint64(random[i]>>((32-d.shift)&31))
		code := min(d.base+uint32(v>>(d.shift&63)), magnitudes-1)
		dst[i] = s.narrow.codes[(bits>>31*magnitudes+code)%(2*magnitudes)]
	}
}
