package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
)

// A factor is what elements are multiplied by, or divided by, before rounding.
type factor struct {
	value  float32
	divide bool
	bf16   bool    // the quotient is rounded to BF16 first
	step   float32 // the product is multiplied by this power of two, unless it is zero
	poison bool    // every element is NaN
}

// isPlain reports whether an element is multiplied or divided by the value and nothing
// else: what kernels do.
func (f factor) isPlain() bool { return !f.bf16 && f.step == 0 && !f.poison }

// isFactor reports whether kernels multiply or divide by f.
func (f factor) isFactor() bool { return f.isPlain() && f.value > 0 && f.value <= maxFloat32 }

// apply returns x before rounding.
func (f factor) apply(x float32) float32 {
	if f.poison {
		return float32(math.NaN())
	}
	if !f.divide {
		x = float32(x * f.value)
		if f.step != 0 {
			x *= f.step
		}
		return x
	}
	x /= f.value
	if f.bf16 {
		x = toBF16(x)
	}
	return x
}

// arithmetics has the formulas of each Arithmetic. max is the largest element:
//
//	fp32     FP32 decode scale and factor of a block, from its amax; max is HalfRange of the elements
//	global   global scale, from the amax of the tensor; a block with that amax gets the E4M3 scale top
//	block    E4M3 scale of a block, from its amax and the global scale
//	element  factor of the elements under an E4M3 scale and the global scale
var arithmetics = []struct {
	fp32    func(amax, max float32, pow2 bool) (decode float32, f factor)
	global  func(amax, max, top float32) global
	block   func(amax, max float32, g global) (scale byte)
	element func(scale byte, g global) factor
	typed   bool // quotients by the scale of the whole tensor have the source's dtype
}{
	EncodeFirst:      {encodeFirst, globalEncodeFirst, blockEncodeFirst, elementEncodeFirst, false},
	EncodeFirst64:    {encodeFirst64, globalDecodeFirst, blockEncodeFirst64, elementEncodeFirst64, false},
	DecodeFirst:      {decodeFirst, globalDecodeFirst, blockDecodeFirst, elementDecodeFirst, false},
	DecodeFirstBF16:  {decodeFirstBF16, globalDecodeFirstBF16, blockDecodeFirstBF16, elementDecodeFirstBF16, false},
	BlockOnly:        {decodeFirst, globalNone, blockOnly, elementBlockOnly, false},
	BlockNearest:     {decodeFirst, globalNone, blockNearest, elementBlockOnly, false},
	HalfScale:        {halfScale, globalNone, blockOnly, elementBlockOnly, false},
	DecodeFirstTyped: {decodeFirst, globalDecodeFirst, blockDecodeFirst, elementDecodeFirst, true},
}

// A global holds both directions of a tensor's global scale, each as its
// library computes it.
type global struct{ encode, decode float32 }

var scaleFormat = format.E4M3 // of the formats with a global scale

const bf16Epsilon = 1.0 / 128 // the relative spacing of BF16

// safeDivide returns a/b, kept finite.
func safeDivide(a, b float32) float32 { return min(a/b, maxFloat32) }

// isUsable reports whether a scale can be computed from amax. Transformer Engine uses scale 1 for a
// tensor of zeros, or with an Inf.
func isUsable(amax float32) bool { return amax > 0 && amax <= maxFloat32 }

func encodeFirst(amax, max float32, pow2 bool) (float32, factor) {
	if !isUsable(amax) {
		return 1, factor{value: 1}
	}
	encode := safeDivide(max, amax)
	if pow2 {
		encode = math.Float32frombits(math.Float32bits(encode) & exponentMask)
	}
	return 1 / encode, factor{value: encode}
}

// minAmax is the smallest amax that EncodeFirst64 scales by.
const minAmax = 1e-12

func encodeFirst64(amax, max float32, pow2 bool) (float32, factor) {
	encode := float32(float64(max) / math.Max(float64(amax), minAmax))
	if pow2 {
		encode = math.Float32frombits(math.Float32bits(encode) & exponentMask)
	}
	if encode == 0 { // amax is Inf
		return float32(math.Inf(1)), factor{value: 0}
	}
	return 1 / encode, factor{value: encode}
}

func decodeFirst(amax, max float32, pow2 bool) (float32, factor) {
	decode := amax / max
	if !isUsable(amax) || decode == 0 {
		decode = 1
	}
	if pow2 {
		decode = ceilPowerOfTwo(decode)
	}
	return decode, factor{value: decode, divide: true}
}

func decodeFirstBF16(amax, max float32, pow2 bool) (float32, factor) {
	amax = toBF16(amax)
	decode := toBF16(amax / max)
	if !isUsable(amax) || decode == 0 {
		decode = bf16Epsilon
	}
	if pow2 {
		decode = ceilPowerOfTwo(decode)
	}
	return decode, factor{value: decode, divide: true, bf16: true}
}

// halfScale scales elements to integers first, as ggml does: near the top of float32
// the inverse of amax/max would be subnormal.
func halfScale(amax, max float32, _ bool) (float32, factor) {
	step := format.INT8.Smallest()
	d := amax / float32(max/step)
	if !(d > 0) {
		return 0, factor{value: 0}
	}
	half := format.FP16.EncodeWith(d, format.Conversion{Overflow: format.NonSaturating}, 0)
	return format.FP16.Decode(half) / step, factor{value: 1 / d, step: step}
}

func globalEncodeFirst(amax, max, top float32) global {
	encode := float32(1)
	if amax > 0 {
		encode = safeDivide(top*max, amax)
	}
	if encode == 0 { // amax is Inf
		encode = 1
	}
	return global{encode, 1 / encode}
}

// givenGlobal returns both directions of the global scale of With.Inverse.
func givenGlobal(inverse float32) global { return global{encode: inverse, decode: 1 / inverse} }

// encodeScale returns scaleFormat.Encode(x) for x ≥ 0.
func encodeScale(x float32) byte {
	if !(scaleFormat.SmallestNormal() <= x && x <= scaleFormat.Max()) {
		return byte(scaleFormat.Encode(x))
	}
	shift := mantissaBits - scaleFormat.Mantissa
	bits := math.Float32bits(x)
	bits += 1<<(shift-1) - 1 + bits>>shift&1
	return byte(bits>>shift - uint32((exponentBias-scaleFormat.Bias)<<scaleFormat.Mantissa))
}

func blockEncodeFirst(amax, max float32, g global) byte {
	reciprocal := float32(1 / max)
	wanted := min(float32(amax*float32(g.encode*reciprocal)), maxFloat32)
	return encodeScale(wanted)
}

func elementEncodeFirst(scale byte, g global) factor {
	return factor{value: safeDivide(1, float32(scaleFormat.Decode(uint32(scale))*g.decode))}
}

func globalDecodeFirst(amax, max, top float32) global {
	decode := amax / float32(top*max)
	if !isUsable(amax) || decode == 0 {
		decode = 1
	}
	return global{1 / decode, decode}
}

func blockEncodeFirst64(amax, max float32, g global) byte {
	return encodeScale(clamp(amax/max/g.decode, scaleFormat.SmallestNormal(), scaleFormat.Max()))
}

func elementEncodeFirst64(scale byte, g global) factor {
	return factor{value: g.encode / scaleFormat.Decode(uint32(scale))}
}

func blockDecodeFirst(amax, max float32, g global) byte {
	wanted := amax / float32(max*g.decode)
	if wanted == 0 {
		wanted = 1
	}
	return encodeScale(clamp(wanted, scaleFormat.Smallest(), scaleFormat.Max()))
}

func elementDecodeFirst(scale byte, g global) factor {
	return factor{value: float32(scaleFormat.Decode(uint32(scale)) * g.decode), divide: true}
}

func globalDecodeFirstBF16(amax, max, top float32) global {
	amax = toBF16(amax)
	encode := toBF16(float32(top*max) * toBF16(1/amax)) // PyTorch divides a number by a tensor so
	if !isUsable(amax) || encode > maxFloat32 {
		encode = 1
	}
	return global{encode, 1 / encode}
}

func blockDecodeFirstBF16(amax, max float32, g global) byte {
	wanted := clamp(float32(g.encode*toBF16(amax/max)), 0, scaleFormat.Max())
	code := scaleFormat.Encode(wanted)
	if code == 0 {
		code = scaleFormat.Encode(1.0 / 8) // the epsilon of E4M3
	}
	return byte(code)
}

func elementDecodeFirstBF16(scale byte, g global) factor {
	return factor{value: scaleFormat.Decode(uint32(scale)) / g.encode, divide: true}
}

func globalNone(float32, float32, float32) global { return global{1, 1} }

func blockOnly(amax, max float32, _ global) byte {
	wanted := amax / max
	code := scaleFormat.EncodeWith(wanted, format.Conversion{Rounding: format.HalfAway}, 0)
	switch topBinade := scaleFormat.MaxCode() >> scaleFormat.Mantissa << scaleFormat.Mantissa; {
	case wanted < scaleFormat.SmallestNormal():
		code = min(uint32(wanted/scaleFormat.Smallest()+0.5), 1<<scaleFormat.Mantissa-1)
	case code >= topBinade:
		code = scaleFormat.MaxCode()
	}
	return byte(code)
}

func blockNearest(amax, max float32, _ global) byte { return byte(scaleFormat.Encode(amax / max)) }

func elementBlockOnly(scale byte, _ global) factor {
	if scale == 0 {
		return factor{value: 0}
	}
	return factor{value: scaleFormat.Decode(uint32(scale)), divide: true}
}

func clamp(x, low, high float32) float32 { return min(max(x, low), high) }

// ceilPowerOfTwo returns the least power of two that is at least x > 0.
func ceilPowerOfTwo(x float32) float32 {
	fraction, exponent := math.Frexp(float64(x))
	if fraction == 0.5 {
		exponent--
	}
	return exp2(exponent)
}

// toBF16 rounds to BF16, ties to even.
func toBF16(x float32) float32 {
	b := math.Float32bits(x)
	if b&absMask > exponentMask {
		return format.BF16.Decode(format.BF16.EncodeWith(x, format.Conversion{Overflow: format.NonSaturating}, 0))
	}
	const dropped = 16
	return math.Float32frombits((b + (1<<(dropped-1) - 1) + b>>dropped&1) >> dropped << dropped)
}
