package format

import (
	"fmt"
	"math"
	"strings"
)

// Rounding says which of the two neighboring codes a value takes.
type Rounding uint8

const (
	NearestEven    Rounding = iota // ties to the even significand (E8M0: up); IEEE 754, OCP, every vendor's hardware
	HalfAway                       // ties away from zero; microxcaling's "nearest"
	HalfTowardZero                 // ties toward zero; ggml's FP4 tables
	TowardZero                     // the neighbor of smaller magnitude; PTX .rz
	Up                             // the neighbor toward +Inf; PTX .rp
	Stochastic                     // up with the probability of the fraction; needs random bits
)

var roundingNames = []string{"nearest-even", "half-away", "half-toward-zero", "toward-zero", "up", "stochastic"}

// String returns the name used on the command line.
func (r Rounding) String() string { return roundingNames[r] }

// ParseRounding finds a rounding by its name.
func ParseRounding(name string) (Rounding, error) {
	i, err := parseName("rounding", name, roundingNames)
	return Rounding(i), err
}

// Overflow says what becomes of magnitudes beyond the largest finite value after
// rounding, and of infinities. A format without the special it asks for falls
// back: Inf to NaN, NaN to the largest value.
type Overflow uint8

const (
	Saturate       Overflow = iota // all to ±Max; PTX .satfinite, the saturating mode of OFP8, PyTorch 2.15's cast to E4M3
	NonSaturating                  // all to ±Inf; the non-saturating mode of OFP8, ml_dtypes' casts, PyTorch's to other FP8
	SaturateFinite                 // finite to ±Max, Inf to ±Inf
)

var overflowNames = []string{"saturate", "nonsaturating", "saturate-finite"}

// String returns the name used on the command line.
func (o Overflow) String() string { return overflowNames[o] }

// ParseOverflow finds an overflow policy by its name. The two modes that OFP8
// defines are also known as "ofp8-sat" and "ofp8", its non-saturating one.
func ParseOverflow(name string) (Overflow, error) {
	switch strings.ToLower(name) {
	case "ofp8":
		return NonSaturating, nil
	case "ofp8-sat", "satfinite":
		return Saturate, nil
	}
	i, err := parseName("overflow", name, overflowNames)
	return Overflow(i), err
}

// NaN says which code a NaN becomes.
type NaN uint8

const (
	Canonical    NaN = iota // the NaN of all ones with sign 0; +Max where there is no NaN; PTX cvt
	KeepSign                // the same with the sign of the input; ml_dtypes' and PyTorch's fn casts
	Unchecked               // where there is no NaN, what the finite path makes of the bits; torchao's FP4 and FP6
	OppositeZero            // where there is no NaN, the zero of the opposite sign; ml_dtypes' FP4 and FP6
)

// A Conversion is the behavior of an encoder. Its zero value is the hardware's
// cvt.rn.satfinite: nearest-even, saturating, canonical NaN.
type Conversion struct {
	Rounding Rounding
	Overflow Overflow
	NaN      NaN
}

const (
	f32Mantissa = 23
	f32Bias     = 127
	f32Inf      = 0xff << f32Mantissa
	f32Sign     = 1 << 31
)

// Encode returns the code nearest to x by cvt.rn.satfinite (see Conversion).
func (s *Scalar) Encode(x float32) uint32 { return s.EncodeWith(x, Conversion{}, 0) }

// EncodeWith returns the code of x under c. Stochastic rounding goes up when
// the discarded fraction plus random/2^32 reaches one, so that with uniform
// random bits the expected value is x; other roundings ignore random.
//
// It works on the bits alone. With the significand of x as an integer, the code
// (E, M) of a magnitude is itself an integer that grows with the value, so one
// shift with rounding yields it and a carry out of M lands in E as it should.
func (s *Scalar) EncodeWith(x float32, c Conversion, random uint32) uint32 {
	bits := math.Float32bits(x)
	negative := bits&f32Sign != 0 && !s.Unsigned
	bits &^= f32Sign
	if bits > f32Inf && (s.HasNaN() || c.NaN != Unchecked) {
		return s.nan(negative, c.NaN)
	}
	if bits == f32Inf {
		if c.Overflow == Saturate {
			return s.withSign(s.MaxCode(), negative)
		}
		return s.infinity(negative, c.NaN)
	}

	exponent := int(bits >> f32Mantissa)
	significand := uint64(bits & (1<<f32Mantissa - 1))
	if exponent == 0 {
		exponent = 1
		if s.NoZero { // no subnormals to land in: normalize
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

	// significand · 2^(exponent-f32Bias-23), to be expressed in steps of the
	// target's binade E, which is at least 1: below it, steps no longer shrink.
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
	if code > int(s.MaxCode()) {
		return s.overflow(negative, c)
	}
	return s.withSign(uint32(code), negative)
}

// round returns v / 2^shift rounded to an integer. A shift past the width of v
// leaves a fraction below one half.
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

// overflow returns the code of a finite magnitude beyond Max. Rounding toward
// zero, or up from below, never leaves the finite range.
func (s *Scalar) overflow(negative bool, c Conversion) uint32 {
	inward := c.Rounding == TowardZero || c.Rounding == Up && negative
	if c.Overflow == NonSaturating && !inward {
		return s.infinity(negative, c.NaN)
	}
	return s.withSign(s.MaxCode(), negative)
}

// infinity returns the code of Inf, or what the format has in its place.
func (s *Scalar) infinity(negative bool, n NaN) uint32 {
	switch {
	case s.HasInf():
		return s.withSign(s.MaxCode()+1, negative)
	case s.HasNaN():
		return s.nan(negative, n)
	}
	return s.withSign(s.MaxCode(), negative)
}

// nan returns the code of a NaN, or what the format has in its place.
func (s *Scalar) nan(negative bool, n NaN) uint32 {
	switch {
	case s.Specials == UnsignedZero:
		return s.signBit()
	case s.Specials == FiniteOnly && n == OppositeZero:
		return s.withSign(0, !negative)
	case s.Specials == FiniteOnly:
		return s.withSign(s.MaxCode(), negative && n != Canonical)
	}
	return s.withSign(s.magnitudeMask(), negative && n != Canonical)
}

// withSign gives a magnitude its sign. Unsigned formats drop it; the formats
// whose -0 is NaN, or which are integers, have one zero.
func (s *Scalar) withSign(magnitude uint32, negative bool) uint32 {
	switch {
	case !negative:
		return magnitude
	case s.Integer:
		return -magnitude & (s.magnitudeMask() | s.signBit())
	case s.Specials == UnsignedZero && magnitude == 0:
		return 0
	}
	return magnitude | s.signBit()
}

// parseName returns the index of name in names.
func parseName(what, name string, names []string) (int, error) {
	for i, n := range names {
		if strings.EqualFold(n, name) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q: use one of %s", what, name, strings.Join(names, ", "))
}
