package quant

import (
	"math"
	"math/bits"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/behavior"
)

// ScaleRule says how the amax of a block becomes its E8M0 scale. With amax =
// m·2^e, 1 ≤ m < 2, and the element format's largest value M·2^emax, the scale
// is 2^(e-emax), twice that where the rule rounds up, or half. It never is less than
// 2^-127, code 0, which a block of zeros has too (see UnitZeroScale).
type ScaleRule uint8

const (
	RatioCeil ScaleRule = iota // up where m > M, on float32(amax·float32(1/max)) unless ExactRatio: the smallest power of two that saturates nothing; Transformer Engine, cuBLAS
	Floor                      // never up: OCP MX 1.0 §6.3; saturates where m > M
	Ceil                       // up where m > 1
	Even                       // up where m rounds up to 2 at the element's mantissa width
	Round                      // the power of two nearest to amax over the largest value by its logarithm: half of the above where m < M/√2; MLX
)

// scaleRules has what each rule adds to the mantissa bits of amax, which rounds the scale
// up if the sum carries, and how many exponents it begins below. Kernels use the same numbers.
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

// roundFrom returns the mantissa bits from which Round does not halve: those of
// M/√2, which is no float, and at least 1 of every element format.
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
		case q.NonFinite == behavior.Poison:
			return e8m0NaN
		case q.NonFinite == behavior.Tolerate || q.Rule == RatioCeil: // the ratio is Inf, too
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
	if e == 0 && amax != 0 { // a subnormal: its leading bit takes the place of the implicit one
		shift := bits.LeadingZeros32(amax) - (31 - mantissaBits)
		amax <<= shift
		e = 1 - shift
	}
	if amax&mantissaMask+scaleRules[q.Rule].carry(q) > mantissaMask {
		e++
	}
	e -= scaleRules[q.Rule].below
	if e == 0xff && q.NonFinite == behavior.Poison && q.Rule == Even {
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

// exponentFactor returns what elements under an E8M0 scale are multiplied by.
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
