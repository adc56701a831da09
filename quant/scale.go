package quant

import (
	"math"
	"math/bits"

	"github.com/microscale-go/microscale/format"
)

// ScaleRule selects how the amax of a block becomes its E8M0 scale. With amax = m·2^e and the
// largest value of the element format M·2^emax, 1 ≤ m, M < 2, the scale is 2^(e-emax), which the
// rule may double or halve. The minimum is 2^-127, code 0. A block of zeros has that scale, too,
// unless Quantizer.UnitZeroScale is set.
type ScaleRule uint8

const (
	// RatioCeil doubles if m > M, so that no element saturates: the rule of Transformer Engine
	// and cuBLAS, and RCEIL of torchao. It rounds the exponent of float32(amax·float32(1/max))
	// up. That product may be a power of two although m > M; Quantizer.ExactRatio compares m with M.
	RatioCeil ScaleRule = iota

	Floor // never doubles, so elements saturate if m > M: OCP MX 1.0, section 6.3
	Ceil  // doubles if m > 1
	Even  // doubles if m rounds up to 2 at the mantissa bits of the element
	Round // halves if m < M/√2, which gives the power of two nearest in logarithm to amax/max: MLX
)

// scaleRules are the constants of the rules, for the kernels too. A rule doubles the scale if carry
// plus the mantissa bits of amax overflow these bits, and divides it by 2^below.
var scaleRules = []struct {
	carry func(q *Quantizer) uint32
	below int
}{
	RatioCeil: {carry: func(q *Quantizer) uint32 {
		return mantissaMask - math.Float32bits(q.Format.Element.Max())&mantissaMask
	}},
	Floor: {carry: func(*Quantizer) uint32 { return 0 }},
	Ceil:  {carry: func(*Quantizer) uint32 { return mantissaMask }},
	Even:  {carry: func(q *Quantizer) uint32 { return 1 << (mantissaBits - 1 - q.EvenBits()) }},
	Round: {carry: func(q *Quantizer) uint32 { return mantissaMask + 1 - roundFrom(q.Format.Element) }, below: 1},
}

// roundFrom returns the smallest mantissa bits of amax for which Round does not halve the scale:
// those of M/√2 rounded up, which is at least 1 for every element format.
func roundFrom(element *format.Scalar) uint32 {
	fraction, _ := math.Frexp(float64(element.Max()))
	return uint32(math.Ceil((2*fraction/math.Sqrt2 - 1) * (mantissaMask + 1)))
}

// RoundsFrom returns the smallest mantissa m of an amax, 1 ≤ m < 2, whose scale the Round
// rule does not halve.
func (q *Quantizer) RoundsFrom() float32 {
	return 1 + float32(roundFrom(q.Format.Element))/(mantissaMask+1)
}

const (
	mantissaBits = 23
	exponentBias = 127
	mantissaMask = 1<<mantissaBits - 1
	exponentMask = 0xff << mantissaBits
	absMask      = exponentMask | mantissaMask

	maxFloat32 = math.MaxFloat32
)

// exponentCode returns the E8M0 code of a block whose amax has the given
// float32 bits, Inf included, NaN not.
func (q *Quantizer) exponentCode(amax uint32) byte {
	emax := q.Format.Element.MaxExponent()
	if amax == exponentMask {
		switch {
		case q.NonFinite == Poison:
			return e8m0NaN
		case q.NonFinite == Tolerate || q.Rule == RatioCeil: // RatioCeil: the ratio is Inf as well
			return e8m0Max
		}
	}
	if amax == 0 && q.UnitZeroScale {
		return byte(format.E8M0.Bias)
	}
	if q.Rule == RatioCeil && !q.ExactRatio {
		// amax · float32(1/max), then cvt.rp.satfinite.ue8m0.
		ratio := float32(math.Float32frombits(amax) * reciprocalMax(q.Format.Element))
		return byte(format.E8M0.EncodeWith(ratio, format.Conversion{Rounding: format.Up}, 0))
	}
	e := int(amax >> mantissaBits)
	if e == 0 && amax != 0 { // subnormal: normalize, so that its leading bit is the implicit one
		shift := bits.LeadingZeros32(amax) - (31 - mantissaBits)
		amax <<= shift
		e = 1 - shift
	}
	if amax&mantissaMask+scaleRules[q.Rule].carry(q) > mantissaMask {
		e++
	}
	e -= scaleRules[q.Rule].below
	if e == 0xff && q.NonFinite == Poison && q.Rule == Even {
		return e8m0NaN // the rounded amax is Inf
	}
	return byte(min(max(e-emax, 0), e8m0Max))
}

// Codes of E8M0.
const (
	e8m0Max = 0xfe // 2^127
	e8m0NaN = 0xff
)

// EvenBits returns the mantissa bits that the Even rule rounds amax to.
func (q *Quantizer) EvenBits() int {
	if q.EvenMantissa > 0 {
		return q.EvenMantissa
	}
	if q.Format.Element.Integer {
		return q.Format.Element.Mantissa - 1 // its leading bit is stored
	}
	return q.Format.Element.Mantissa
}

// exponentFactor returns the factor of elements under an E8M0 scale.
func (q *Quantizer) exponentFactor(code byte) float32 {
	if code == 0 {
		if q.SmallestDivisor == 0 {
			return exp2(format.E8M0.Bias)
		}
		return 1 / q.SmallestDivisor
	}
	return exp2(format.E8M0.Bias - int(code))
}

// reciprocalMax returns float32(1/max), the constant that libraries multiply by.
func reciprocalMax(element *format.Scalar) float32 { return float32(1 / float64(element.Max())) }

// exp2 returns 2^k as a float32, subnormals included.
func exp2(k int) float32 {
	if k < 1-exponentBias {
		return math.Float32frombits(1 << max(k+exponentBias-1+mantissaBits, 0))
	}
	return math.Float32frombits(uint32(k+exponentBias) << mantissaBits)
}
