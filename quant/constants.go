package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
)

// exponentConstants are what a fused kernel computes E8M0 scales and codes with.
// The code of a scale is the exponent of amax·ratio once up is added to its bits,
// less down: every ScaleRule in one form.
type exponentConstants struct {
	ratio  uint32 // float32
	up     uint32
	down   uint32
	low    uint32 // bits of the least amax that kernels support; zero is supported, too
	span   uint32 // bits of the greatest, less low
	floor  uint32 // codes below it, of blocks of zeros, are taken for it
	least  uint32 // what the exponent of the smallest normal element is below the code
	base   uint32 // less the code: the bias of the rounding sum in steps of a binade; of an integer, the exponent of the factor
	step   uint32 // log2 of the codes in a binade
	anchor uint32 // 2^(23 - mantissa bits)
	shift  uint32 // 23 - mantissa bits
	limit  uint32 // largest code, in each byte; of an integer, as float32
	factor uint32 // less the code, the exponent of the inverse of the scale
	sign   uint32 // the sign bit of a code, in each byte
	bits   uint32 // of a stored code
}

// exponentConstants computes the constants of a quantizer with E8M0 scales.
func (q *Quantizer) exponentConstants() exponentConstants {
	e := q.Format.Element
	emax, bias, m := e.MaxExponent(), e.Bias, e.Mantissa
	// No exponent leaves its field between these codes: not that of the smallest
	// normal element, nor that of the rounding sum.
	lowest, highest := max(bias, 8), exponentBias+100
	c := exponentConstants{
		ratio:  math.Float32bits(1),
		down:   uint32(emax),
		low:    uint32(lowest+emax+2) << mantissaBits,
		floor:  uint32(lowest),
		least:  uint32(bias - 1),
		base:   uint32(bias - 1 - mantissaBits + m),
		step:   uint32(m),
		anchor: uint32(exponentBias+mantissaBits-m) << mantissaBits,
		shift:  uint32(mantissaBits - m),
		limit:  e.MaxCode() * 0x01010101,
		factor: 2 * exponentBias,
		sign:   0x01010101 << (e.Bits() - 1),
		bits:   uint32(e.StoredBits()),
	}
	c.span = uint32(highest)<<mantissaBits - c.low - 1
	if e.Integer {
		c.base = uint32(2*exponentBias + bias + m - 1)
		c.limit = math.Float32bits(float32(e.MaxCode()))
	}
	c.up = scaleRules[q.Rule].carry(q)
	c.down += uint32(scaleRules[q.Rule].below)
	if q.Rule == RatioCeil && !q.ExactRatio { // of the product with the reciprocal, every fraction
		c.ratio, c.up, c.down = math.Float32bits(reciprocalMax(e)), mantissaMask, 0
	}
	return c
}

// exponentWords are the constants of a fused kernel that finds codes of 8 bits from BF16 by the bits of words.
type exponentWords struct {
	exponentConstants
	// bits of BF16: those of the smallest normal element, less those that code 0 would have, plus half the least bit that stays, minus 1
	below  uint32
	low    uint32 // the bits of BF16 that are dropped and the last that stays, twice
	times  uint32 // 2^16 over the least bit that stays, twice
	tie    uint32 // low, in each byte
	normal uint32 // the least normal code, in each byte
}

func newExponentWords(element *format.Scalar, c exponentConstants) exponentWords {
	const twice, four = 1<<16 | 1, 0x01010101
	last := uint32(1) << (format.BF16.Mantissa - element.Mantissa) // the least bit that stays
	return exponentWords{
		exponentConstants: c, below: 1<<format.BF16.Mantissa + last/2 - 1, low: (2*last - 1) * twice, times: 1 << 16 / last * twice,
		tie: (2*last - 1) * four, normal: four << element.Mantissa,
	}
}

// globalConstants are what a fused kernel computes E4M3 scales under a global
// one, and their codes, with: EncodeFirst.
type globalConstants struct {
	encode      float32 // amax × encode is the scale
	decode      float32 // the global scale
	infinity    uint32  // bits of the smallest amax that kernels do not support
	limit       float32 // largest element
	least       float32 // smallest normal element
	anchor      float32 // of the rounding sum
	shift       uint32  // 23 - mantissa bits
	scaleLimit  float32 // the same of the scale
	scaleLeast  float32
	scaleAnchor float32
	rebias      float32 // times an E4M3 code shifted to the mantissa of a float32, is its value
	one         float32
	most        float32 // the largest float32
}

func newGlobalConstants(element *format.Scalar, g global) globalConstants {
	return globalConstants{
		encode:      float32(g.encode * reciprocalMax(element)),
		decode:      g.decode,
		infinity:    exponentMask,
		limit:       element.Max(),
		least:       element.SmallestNormal(),
		anchor:      roundingAnchor(element),
		shift:       uint32(mantissaBits - element.Mantissa),
		scaleLimit:  scaleFormat.Max(),
		scaleLeast:  scaleFormat.SmallestNormal(),
		scaleAnchor: roundingAnchor(scaleFormat),
		rebias:      exp2(exponentBias - scaleFormat.Bias),
		one:         1,
		most:        maxFloat32,
	}
}

// bytesConstants are what kernels for codes of 8 bits under FP32 scales compute
// with.
type bytesConstants struct {
	limit    float32 // largest element
	least    float32 // smallest normal element
	anchor   float32 // of the rounding sum
	shift    uint32  // 23 - mantissa bits
	max      float32 // largest element, over which an amax is its factor: EncodeFirst
	mask     uint32  // of the factor: its exponent alone, where scales are powers of two
	one      float32
	most     float32 // the largest float32
	infinity uint32  // bits of the smallest amax that kernels do not support
}

func (q *Quantizer) bytesConstants() bytesConstants {
	e := q.Format.Element
	c := bytesConstants{
		limit:    e.Max(),
		least:    e.SmallestNormal(),
		anchor:   roundingAnchor(e),
		shift:    uint32(mantissaBits - e.Mantissa),
		max:      e.Max(),
		mask:     absMask,
		one:      1,
		most:     maxFloat32,
		infinity: exponentMask,
	}
	if q.PowerOfTwo {
		c.mask = exponentMask
	}
	return c
}

// encodeConstants are what encode, column, row and join kernels compute codes with.
type encodeConstants struct {
	limit     float32 // largest element
	least     float32 // smallest normal element
	anchor    float32 // of the rounding sum
	shift     uint32  // 23 - mantissa bits
	sign      uint32  // the sign bit of a code, in each byte
	signShift uint32  // what takes bit 7 there
	unit      float32 // of an integer, the steps in 1; else 1
	binade    uint32  // exponent of the smallest normal element, as float32 has it
	mantissa  uint32  // bits
	largest   uint32  // code
	thirtyTwo uint32
	implicit  uint32 // the leading bit of a significand

	// Of factors that are powers of two:
	codeLimit   uint32 // largest code, in each byte
	powerLeast  uint32 // less the bits of the factor: the smallest normal element over it
	powerBias   uint32 // what is added to the exponent of the factor, in steps of a binade: the bias of the rounding sum
	powerAnchor uint32 // 2^(23 - mantissa bits)
}

func newEncodeConstants(element *format.Scalar) encodeConstants {
	const top = 7
	place := element.Bits() - 1
	c := encodeConstants{
		limit:     element.Max(),
		least:     element.SmallestNormal(),
		anchor:    roundingAnchor(element),
		shift:     uint32(mantissaBits - element.Mantissa),
		sign:      0x01010101 << place,
		signShift: uint32(top - place),
		unit:      1,
		binade:    uint32(exponentBias + 1 - element.Bias),
		mantissa:  uint32(element.Mantissa),
		largest:   element.MaxCode(),
		thirtyTwo: 32,
		implicit:  1 << mantissaBits,
	}
	c.codeLimit = element.MaxCode() * 0x01010101
	c.powerLeast = uint32(2*exponentBias+1-element.Bias) << mantissaBits
	c.powerBias = uint32(element.Bias-1-mantissaBits+element.Mantissa-2*exponentBias) << element.Mantissa
	c.powerAnchor = uint32(exponentBias+mantissaBits-element.Mantissa) << mantissaBits
	if element.Integer {
		c.unit = 1 / element.Smallest()
		c.limit *= c.unit
	}
	return c
}

// roundingAnchor returns 2^(23-m)·(1 + bias·2^-23), where the bias takes off the
// low half of the rounding sum what the binade of the smallest normal adds.
func roundingAnchor(element *format.Scalar) float32 {
	shift := mantissaBits - element.Mantissa
	binades := exponentBias + 1 - element.Bias + shift
	return math.Float32frombits(uint32(exponentBias+shift)<<mantissaBits | uint32(uint16(-binades<<element.Mantissa)))
}

// signMagnitude reports whether the elements are encoded as kernels do: to
// nearest even, by magnitude, with the sign of the input.
func (q *Quantizer) signMagnitude() bool {
	e := q.Format.Element
	return q.Rounding == format.NearestEven && q.NegativeZero == KeepNegativeZero &&
		e.HasNegativeZero()
}

// decodeTables are what decode kernels look codes up in.
type decodeTables struct {
	// bytes of the values as float32, whose first two are zero: the third of
	// each of 128 codes, then the highest. In formats of 8 bits, signs aside.
	bytes  [256]byte
	values [16]float32 // of the first codes
	// floats are what finite codes of 8 bits become float32 with: their magnitude, at the
	// place of exponent and mantissa, times a power of two.
	floats struct {
		shift   uint32 // 23 - mantissa bits
		mask    uint32 // sign and magnitude there
		power   float32
		largest uint32 // finite code, in each byte
	}
	all [256]float32 // the values of all codes, of formats of 8 bits
}

var decodeTablesOf = func() map[*format.Scalar]*decodeTables {
	all := map[*format.Scalar]*decodeTables{}
	for _, s := range format.All() {
		if s.Bits() > 8 {
			continue
		}
		t := &decodeTables{}
		half := len(t.bytes) / 2
		for c := range half {
			bits := math.Float32bits(s.Decode(uint32(c)))
			t.bytes[c], t.bytes[half+c] = byte(bits>>16), byte(bits>>24)
		}
		for c := range t.values {
			t.values[c] = s.Decode(uint32(c))
		}
		if s.Bits() == 8 && !s.Unsigned {
			shift := mantissaBits - s.Mantissa
			t.floats.shift, t.floats.mask = uint32(shift), 1<<31|0x7f<<shift
			t.floats.power, t.floats.largest = exp2(exponentBias-s.Bias), s.MaxCode()*0x01010101
			for c := range t.all {
				t.all[c] = s.Decode(uint32(c))
			}
		}
		all[s] = t
	}
	return all
}()
