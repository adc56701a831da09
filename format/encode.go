package format

import (
	"math"
)

const (
	f32Mantissa = 23
	f32Bias     = 127
	f32Inf      = 0xff << f32Mantissa
	f32Sign     = 1 << 31
)

// Encode returns the code nearest to x, by PTX's cvt.rn.satfinite: ties to even, saturating,
// canonical NaN.
func (s *Scalar) Encode(x float32) uint32 { return s.EncodeWith(x, Conversion{}, 0) }

// EncodeWith returns the code of x under c. Stochastic rounding rounds up if the discarded
// fraction plus random/2^32 is at least one, so that uniform random bits give x as the expected
// value. Other roundings ignore random.
//
// EncodeWith uses integer arithmetic. The code (E, M) of a magnitude is an integer that grows
// with the value. So one shift of the significand with rounding yields M, and a carry out of M
// increments E.
func (s *Scalar) EncodeWith(x float32, c Conversion, random uint32) uint32 {
	bits := math.Float32bits(x)
	negative := bits&f32Sign != 0 && !s.Unsigned
	bits &^= f32Sign
	if bits > f32Inf && (s.HasNaN() || c.NaN != Unchecked) {
		return s.nan(negative, c.NaN)
	}
	if bits == f32Inf {
		if c.Overflow == Saturate {
			return s.largest(negative)
		}
		return s.infinity(negative)
	}

	exponent := int(bits >> f32Mantissa)
	significand := uint64(bits & (1<<f32Mantissa - 1))
	if exponent == 0 {
		exponent = 1
		if s.NoZero { // the format has no subnormals: normalize
			if significand == 0 {
				return 0
			}
			for significand < 1<<f32Mantissa {
				significand <<= 1
				exponent--
			}
		}
	} else {
		significand |= 1 << f32Mantissa
	}

	// x = significand · 2^(exponent-f32Bias-23). Express it in steps of the target's binade E.
	// E is at least 1: subnormals have the step of the smallest normal.
	e := exponent - f32Bias + s.Bias
	shift := f32Mantissa - s.Mantissa
	base := 0
	switch {
	case s.NoZero:
		if e < 0 {
			return 0
		}
		base = e - 1
	case s.Exponent == 0:
		if e > 1 {
			return s.overflow(negative, c)
		}
		shift += 1 - e
	case e > 1:
		base = (e - 1) << s.Mantissa
	default:
		shift += 1 - e
	}
	code := base + int(round(significand, shift, negative, c.Rounding, random))
	if bits > f32Inf {
		return s.withSign(uint32(code)&s.magnitudeMask(), negative)
	}
	if code > int(s.limit(negative)) {
		return s.overflow(negative, c)
	}
	return s.withSign(uint32(code), negative)
}

// round returns v / 2^shift rounded to an integer. If the shift exceeds the width of v, the
// fraction is below one half.
func round(v uint64, shift int, negative bool, r Rounding, random uint32) uint64 {
	if shift == 0 {
		return v
	}
	const widest = f32Mantissa + 3
	if shift > widest && r != Stochastic {
		if v != 0 {
			v = 1 // a sticky bit: below half, above zero
		}
		shift = widest
	}
	if shift > 63 {
		return 0
	}
	quotient := v >> shift
	rest := v & (1<<shift - 1)
	half := uint64(1) << (shift - 1)
	var up bool
	switch r {
	case NearestEven:
		up = rest > half || rest == half && quotient&1 == 1
	case HalfAway:
		up = rest >= half
	case HalfTowardZero:
		up = rest > half
	case TowardZero:
	case Up:
		up = rest != 0 && !negative
	case Stochastic:
		// The fraction to 32 bits, rounded down, plus the random bits.
		fraction := rest
		if shift <= 32 {
			fraction <<= 32 - shift
		} else {
			fraction >>= shift - 32
		}
		up = fraction+uint64(random) >= 1<<32
	}
	if up {
		quotient++
	}
	return quotient
}

// overflow returns the code of a finite magnitude above Max. Rounding toward zero, and up for
// negative values, stays in the finite range.
func (s *Scalar) overflow(negative bool, c Conversion) uint32 {
	inward := c.Rounding == TowardZero || c.Rounding == Up && negative
	if c.Overflow == NonSaturating && !inward {
		return s.infinity(negative)
	}
	return s.largest(negative)
}

// largest returns the code of the largest finite magnitude with a sign.
func (s *Scalar) largest(negative bool) uint32 { return s.withSign(s.limit(negative), negative) }

// limit returns the largest finite magnitude of the codes with a sign.
func (s *Scalar) limit(negative bool) uint32 {
	if s.fullRange && negative {
		return s.MaxCode() + 1
	}
	return s.MaxCode()
}

// infinity returns the code of Inf, of NaN in formats without Inf, or of the largest value in
// formats without either. All have the sign of the number, as in ml_dtypes: the policy for NaN is that
// for numbers that are NaN.
func (s *Scalar) infinity(negative bool) uint32 {
	switch {
	case s.HasInf():
		return s.withSign(s.MaxCode()+1, negative)
	case s.HasNaN():
		return s.nan(negative, KeepSign)
	}
	return s.largest(negative)
}

// nan returns the code of a NaN. In formats without NaN, the policy n selects the code.
func (s *Scalar) nan(negative bool, n NaN) uint32 {
	switch {
	case s.specials == negativeZeroNaN:
		return s.signBit()
	case s.specials == finiteOnly && n == OppositeZero:
		return s.withSign(0, !negative)
	case s.specials == finiteOnly:
		return s.withSign(s.MaxCode(), negative && n != Canonical)
	}
	return s.withSign(s.magnitudeMask(), negative && n != Canonical)
}

// withSign returns the code of a magnitude with a sign. Unsigned formats ignore the sign.
// Integers, and formats whose code of -0 is NaN, have one zero.
func (s *Scalar) withSign(magnitude uint32, negative bool) uint32 {
	switch {
	case !negative:
		return magnitude
	case s.Integer:
		return -magnitude & (s.magnitudeMask() | s.signBit())
	case s.specials == negativeZeroNaN && magnitude == 0:
		return 0
	}
	return magnitude | s.signBit()
}
