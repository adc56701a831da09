package quant

import (
	"math"
	"slices"

	"github.com/microscale-go/microscale/format"
)

// A Bound limits the error and the scales of a block format, for every scale rule, arithmetic,
// search and rounding of a Quantizer:
//
//	elements  a code is one of the two elements next to x/scale, or the largest element if x/scale
//	          exceeds it. So |x̂-x| is at most the spacing of elements there, times the scale.
//	          Under the E8M0 scale 2^-127, x̂ may also be anywhere between 0 and x (SmallestDivisor)
//	scales    the scale is between ¼ and 8 times amax/max, if the scale format has such a scale
//
// The bound does not hold for quantizations that move errors from one element to others, as
// GPTQ does, nor for transformed values (Quantizer.Hadamard).
type Bound struct {
	format   Format
	max      float64
	lowest   float64 // magnitude of the most negative element
	smallest float64 // spacing of the smallest elements
	step     float32 // spacing of elements over the power of two at or below them; 0: all have the same spacing
	quotient float64 // relative error of x/scale before rounding
}

const (
	// minScale and maxScale bound a scale over amax/max. The extremes are those of
	// E8M0: Floor gives at least 3/4 and Ceil less than 4 of it, and a search half or
	// twice that.
	minScale, maxScale = 1.0 / 4, 8

	// earlierScale is how far the one scale of a tensor may be from that range in
	// either direction: it may come from an earlier amax, or from siblings.
	earlierScale = 16

	bf16Quotient = 1.0 / 256 // DecodeFirstBF16 rounds quotients to 8 bits
	floatError   = 0x1p-20   // of a few operations in float32
	minNormal    = 0x1p-126  // of float32
)

// Bound returns the bound of a format with scales.
func (f Format) Bound() Bound {
	e := f.Element
	b := Bound{format: f, max: float64(e.Max()), lowest: 2*float64(e.HalfRange()) - float64(e.Max()),
		smallest: float64(e.Smallest()), quotient: floatError}
	if !e.Integer {
		b.step = exp2(-e.Mantissa)
	}
	if f.Scale != format.E8M0 { // under powers of two quotients are exact
		b.quotient = bf16Quotient
	}
	return b
}

// Bounds reports whether the bound holds under a scale, which includes the global one. It does not if
// either is subnormal, where arithmetics lose precision. E8M0 scales are exact.
func (b *Bound) Bounds(scale, global float32) bool {
	if b.format.Global && global < minNormal {
		return false
	}
	return scale <= 0 || scale >= minNormal || b.format.Scale == format.E8M0
}

// Beyond returns how many elements of a block are further from the source than the
// bound allows under the block's decode scale, and the index of the first. Elements
// that are NaN or Inf are not counted, and none is under a scale of zero.
func (b *Bound) Beyond(want, got []float32, scale float32) (n, first int) {
	s := float64(scale)
	if s == 0 {
		return 0, 0
	}
	quotient := b.quotient
	if b.format.same(Q8_0) {
		quotient = halfError(s * b.smallest)
	}
	underSmallest := b.format.Scale == format.E8M0 && scale == exp2(-format.E8M0.Bias)
	inverse := (1 + quotient) / s
	for i, x := range want {
		largest := b.max * s
		if x < 0 {
			largest = b.lowest * s
		}
		target, spacing := math.Abs(float64(x)), b.smallest
		if got[i] == x { // also the code -128 of INT8, which no rule chooses
			continue
		}
		switch {
		case target > largest*(1+quotient):
			target, spacing = largest, 0
		case b.step > 0:
			binade := math.Float32frombits(math.Float32bits(float32(target*inverse)) & exponentMask)
			spacing = max(spacing, float64(binade*b.step))
		}
		apart := math.Abs(float64(got[i]) - math.Copysign(target, float64(x)))
		if y := math.Copysign(1, float64(x)) * float64(got[i]); underSmallest && 0 <= y && y <= target {
			continue
		}
		if apart > spacing*s*(1+floatError)+target*quotient && apart <= math.MaxFloat64 && x-x == 0 {
			if n == 0 {
				first = i
			}
			n++
		}
	}
	return n, first
}

// halfError bounds the relative difference between an FP16 scale and the float32 one
// that it was rounded from, by which HalfScale divides.
func halfError(half float64) float64 {
	spacing := float64(format.FP16.Smallest())
	if half >= float64(format.FP16.SmallestNormal()) {
		spacing = math.Ldexp(1, math.Ilogb(half)-format.FP16.Mantissa)
	}
	return spacing / half
}

// Scale reports whether some rule gives the decode scale, which includes the global scale, to a
// block of the given amax, or to a tensor if the format has one scale for it. Any scale that is not
// negative is possible for a block of zeros, and Inf is possible for every block.
func (b *Bound) Scale(scale, global, amax float32) bool {
	s, w := float64(scale), float64(amax)/b.max
	if amax == 0 || scale > maxFloat32 {
		return s >= 0
	}
	lower, upper := w*minScale, w*maxScale
	switch g := float64(global); {
	case b.format.Scale == format.E8M0:
		searched := float64(exponentSteps[len(exponentSteps)-1])
		upper = max(upper, math.Ldexp(1, int(searched)-format.E8M0.Bias))
		lower = min(lower, math.Ldexp(1, e8m0Max-format.E8M0.Bias-int(searched)))
	case b.format.Scale == format.E4M3:
		// The least scale is the smallest, or the smallest normal one, of E4M3; values
		// that are zeros under the smallest get any up to 1, of which a search takes less
		// than twice.
		if w < g*float64(scaleFormat.SmallestNormal())*(1+floatError) {
			upper = max(upper, 2*g*float64(scaleFormat.SmallestNormal()))
		}
		if w <= g*float64(scaleFormat.Smallest())*(0.5+bf16Quotient) {
			lower, upper = 0, 2*g
		}
		top := scaleFormat.MaxCode() + uint32(slices.Min(codeSteps))
		lower = min(lower, g*float64(scaleFormat.Decode(top))*(1-floatError))
	case b.format.same(Q8_0):
		if w*b.smallest < float64(format.FP16.Smallest()) {
			lower = 0
		}
	default:
		if b.format.PerTensor() {
			lower, upper = lower/earlierScale, upper*earlierScale
		}
		if amax <= minAmax {
			upper = max(upper, minAmax/b.max*maxScale)
		}
		if w < minNormal { // a scale of zero is replaced by 1 or the epsilon of BF16
			lower, upper = 0, max(upper, 2)
		}
	}
	return lower <= s && s <= upper
}

// Global reports whether some rule gives the global scale to a tensor of the given amax. 1 is always
// possible: some rules use no global scale.
func (b *Bound) Global(global, amax float32) bool {
	g, w := float64(global)*float64(scaleFormat.Max()), float64(amax)/b.max
	if global == 1 || global < minNormal || amax == 0 {
		return global > 0
	}
	return w*minScale <= g && g <= w*maxScale*earlierScale
}
