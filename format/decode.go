package format

import "math"

// Decode returns the value of a code, without rounding: every finite value of every format is
// a float32. Codes of NaN decode to a quiet NaN. Decode ignores bits above the format's width,
// such as the sign bit of a UE4M3 byte.
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

// decode implements the formula of the package comment.
func (s *Scalar) decode(code uint32) float32 {
	sign := code & s.signBit()
	mag := code & s.magnitudeMask()
	if s.Integer && sign != 0 {
		mag = s.signBit() - mag // two's complement; the most negative code is one step below -Max
	}
	e := int(mag >> s.Mantissa)
	m := mag & (1<<s.Mantissa - 1)

	var v float64
	switch {
	case s.specials == negativeZeroNaN && sign != 0 && mag == 0:
		return float32(math.NaN())
	case s.specials == finiteNaN && mag == s.magnitudeMask():
		return float32(math.NaN())
	case s.specials == ieee && mag > s.MaxCode():
		if m != 0 {
			return float32(math.NaN())
		}
		v = math.Inf(1)
	case s.Exponent == 0: // an integer: its magnitude may need one more bit than the mantissa field
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
