package format

import "math"

// Decode returns the value of a code, exactly. Bits above the format's width are
// ignored (UE4M3's sign among them). NaN codes decode to a quiet NaN, and every
// finite value of every row is a float32.
func (s *Scalar) Decode(code uint32) float32 {
	if s.decoded != nil {
		return s.decoded[int(code)&(len(s.decoded)-1)]
	}
	return s.decode(code)
}

// IsNaN reports whether code is a NaN of the format.
func (s *Scalar) IsNaN(code uint32) bool {
	v := s.Decode(code)
	return v != v
}

// decode is the formula of the package comment.
func (s *Scalar) decode(code uint32) float32 {
	sign := code & s.signBit()
	mag := code & s.magnitudeMask()
	if s.Integer && sign != 0 {
		mag = s.signBit() - mag // two's complement; the most negative code is -Max - one step
	}
	e := int(mag >> s.Mantissa)
	m := mag & (1<<s.Mantissa - 1)

	var v float64
	switch {
	case s.Specials == UnsignedZero && sign != 0 && mag == 0:
		return float32(math.NaN())
	case s.Specials == FiniteNaN && mag == s.magnitudeMask():
		return float32(math.NaN())
	case s.Specials == IEEE && mag > s.MaxCode():
		if m != 0 {
			return float32(math.NaN())
		}
		v = math.Inf(1)
	case s.Exponent == 0: // an integer: the magnitude may exceed the mantissa field by one
		v = math.Ldexp(float64(mag), 1-s.Bias-s.Mantissa)
	case e == 0 && !s.NoZero:
		v = math.Ldexp(float64(m), 1-s.Bias-s.Mantissa)
	default:
		v = math.Ldexp(float64(m|1<<s.Mantissa), e-s.Bias-s.Mantissa)
	}
	if sign != 0 {
		v = -v
	}
	return float32(v)
}
