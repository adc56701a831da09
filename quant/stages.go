package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
)

// scale computes the scales of n blocks from w.amaxes: their codes or values in w.scales,
// their factors in w.blocks, unless a kernel computes them, and in w.factors as kernels take
// them. Blocks that no kernel encodes are in w.exceptional. amaxOf returns the bits of the
// largest finite magnitude or Inf of a block with NaN.
func (w *worker) scale(o *output, n int, amaxOf func(i int) (amax uint32, hasNaN bool)) (byKernel bool) {
	whole := ceilDiv(n, scaleUnit) * scaleUnit
	amaxes, factors := w.amaxes[:whole], grow(&w.factors, whole)
	clear(amaxes[n:])
	scales := grow(&w.scales, 4*whole)
	w.exceptional = w.exceptional[:0]
	if o.scales != nil {
		if amax := o.scales(factors, scales, amaxes); amax != flagged {
			o.raiseAmax(amax)
			return true
		}
	}
	blocks := grow(&w.blocks, n)
	for i, a := range amaxes[:n] {
		hasNaN := a > exponentMask
		if hasNaN {
			a, _ = amaxOf(i)
		}
		o.raiseAmax(a)
		s := o.blockScale(a, hasNaN)
		blocks[i] = s.factor
		if o.t.Scales32 != nil {
			floats(scales)[i] = s.value
		} else {
			scales[i] = s.code
		}
	}
	if o.search == nil { // otherwise searchScales sets them
		w.setFactors(o, n)
	}
	return false
}

// blockScale is Quantizer.blockScale, without the decode scale where a search knows what each code encodes with.
func (o *output) blockScale(amax uint32, hasNaN bool) blockScale {
	if s := o.search; s != nil && s.most > 0 && !hasNaN && amax < exponentMask {
		if code := o.q.scaleCode(math.Float32frombits(amax), o.global); int(code) <= s.most {
			return blockScale{code: code, factor: s.elements[code]}
		}
	}
	return o.q.blockScale(math.Float32frombits(amax), hasNaN, o.global)
}

// knowsFactors reports whether factors are known before tiles are read: of the tensor, or of
// its stored rows.
func (o *output) knowsFactors() bool { return o.rowFactors != nil || o.q.Format.PerTensor() }

// useFactors sets w.factors to known ones: of n stored rows from row on, or n times that of
// the tensor.
func (w *worker) useFactors(o *output, n, row int) {
	blocks := grow(&w.blocks, n)
	for i := range blocks {
		if o.rowFactors != nil {
			blocks[i] = o.rowFactors[row+i]
		} else {
			blocks[i] = o.tensorFactor
		}
	}
	w.exceptional = w.exceptional[:0]
	w.setFactors(o, n)
}

// setFactors sets w.factors, and lists the blocks that kernels do not encode: those with NaN or
// Inf, or with a factor that is no positive number. All others multiply, or all divide.
func (w *worker) setFactors(o *output, n int) {
	factors := grow(&w.factors, ceilDiv(n, scaleUnit)*scaleUnit)
	for i, f := range w.blocks[:n] {
		factors[i] = f.value
		if w.amaxes[i] >= exponentMask || !f.isFactor() || f.value*o.encode.unit > maxFloat32 {
			factors[i] = 1
			w.exceptional = append(w.exceptional, i)
		}
	}
}

// storeScales copies n scales to the tensor, from the given one on.
func (w *worker) storeScales(o *output, at, from, n int) {
	if o.t.Scales32 != nil {
		copy(o.t.Scales32[at:], floats(w.scales)[from:from+n])
	} else {
		copy(o.t.Scales[at:], w.scales[from:from+n])
	}
}

// raiseAmax updates the running amax of the copy.
func (o *output) raiseAmax(amax uint32) { atomicMax(&o.seen, amax) }

// maxOf returns the largest of x.
func maxOf(x []uint32) (m uint32) {
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// encodeReference encodes a block, or a part of one within a stored row: the reference of
// every kernel. words are random, for stochastic rounding.
func (w *worker) encodeReference(o *output, codes []byte, x []float32, f factor, words []uint32) {
	scaled := grow(&w.scaled, len(x))
	for i, v := range x {
		scaled[i] = f.apply(v)
	}
	if o.q.Rounding == format.Stochastic {
		o.q.Format.Element.EncodeSliceStochastic(codes, scaled, words, o.q.conversion())
	} else {
		o.q.Format.Element.EncodeSliceWith(codes, scaled, o.q.conversion())
	}
	o.q.dropNegativeZeros(codes, scaled)
}
