//go:build !purego

package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

func init() {
	decodeKernels = []decodeKernel{
		decodeNEON(decodeBytesNEONNeeds, 8, 32, decodeBytesNEON),
		decodeNEON(decodeNibblesNEONNeeds, 4, 32, decodeNibblesNEON),
		decodeNEON(decodeNibblesNEONNeeds, 4, 16, decodeNibblesNEON),
	}
	add(&amaxKernels, amaxesNEONNeeds, variant{}, amaxNEON(4, amaxesNEON))
	add(&amaxKernels, amaxesBF16NEONNeeds, variant{bf16: true}, amaxNEON(2, amaxesBF16NEON))
	add(&maxKernels, amaxesNEONNeeds, variant{}, func(src []byte) (amax uint32) {
		amaxesNEON(&amax, &src[0], len(src)/4, len(src))
		return amax
	})
	add(&maxKernels, amaxesBF16NEONNeeds, variant{bf16: true}, func(src []byte) (amax uint32) {
		amaxesBF16NEON(&amax, &src[0], len(src)/2, len(src))
		return amax
	})
	for _, divides := range []bool{false, true} {
		add(&encodeKernels, encodeNEONNeeds, variant{divides: divides}, func(codes []byte, src, factors []float32, extent int,
			c *encodeConstants) {
			encodeNEON(&codes[0], &src[0], len(src), &factors[0], extent, index(divides), c)
		})
	}
	for _, bf16 := range []bool{false, true} {
		fusedKernels = append(fusedKernels,
			fuseBy(fuseNEONNeeds, bf16, exponentBlocks(8, false), neonExponent),
			fuseBy(fuseNEONNeeds, bf16, exponentBlocks(6, false), neonExponent),
			fuseBy(fuseNEONNeeds, bf16, exponentBlocks(4, false), neonExponent),
			fuseBy(fuseNEONNeeds, bf16, exponentBlocks(8, true), neonExponent),
			fuseBy(fuseNEONNeeds, bf16, globalBlocks, neonGlobal),
			fuseBy(fuseNEONNeeds, bf16, bytes128, neonFloat))
	}
	scaleKernels = []scaleKernel{
		scaleBy(scalesNEONNeeds, exponentScale, neonExponent),
		scaleBy(scalesNEONNeeds, globalScale, neonGlobal),
		scaleBy(scalesNEONNeeds, bytesScale, neonFloat),
	}
}

// The kinds of scales that kernels compute. internal/asm knows their numbers and the order of their constants.
const (
	neonExponent = iota
	neonGlobal
	neonFloat
)

// A neonScaling is the constants of a kind of scales.
type neonScaling [12]uint32

// neonScaling returns the constants. A fused kernel encodes integers by factors of their steps.
func (o *output) neonScaling(kind int, fused bool) neonScaling {
	bits := math.Float32bits
	switch kind {
	case neonExponent:
		c := exponentOf(o)
		if fused && o.q.Format.Element.Integer {
			c.factor = c.base
		}
		return neonScaling{c.low, c.span, c.ratio, c.up, c.down, c.floor, c.factor}
	case neonGlobal:
		c := globalOf(o)
		return neonScaling{bits(c.encode), bits(c.scaleLimit), bits(c.scaleLeast), bits(c.scaleAnchor), bits(c.rebias), bits(c.decode),
			bits(c.one), bits(c.most)}
	}
	c := bytesOf(o)
	return neonScaling{bits(c.max), bits(c.most), c.mask, bits(c.one)}
}

const (
	groupNEON = 4  // blocks of a group of fuseNEON
	unitNEON  = 16 // elements that it encodes at once
)

// neonArgs are the arguments of fuseNEON: those of rowGroups, whether the source is BF16, the units of a block, the bits of a
// code (0: integers), and the kind of scales.
type neonArgs struct {
	codes, scales, src        *byte
	groups, rows              int
	codeGap, scaleGap, srcGap int
	half, units, bits, kind   int
	s                         *neonScaling
	c                         *encodeConstants
}

func fuseBy(needs cpu.Set, bf16 bool, supports func(*Quantizer) bool, kind int) fusedKernel {
	begin := func(o *output) func(rowGroups) uint32 {
		e := o.q.Format.Element
		s, c, bits := o.neonScaling(kind, true), newEncodeConstants(e), e.StoredBits()
		if e.Integer {
			bits = 0
		}
		return func(t rowGroups) uint32 {
			return amaxOrFlagged(fuseNEON(neonArgs{
				codes: &t.codes[0], scales: &t.scales[0], src: &t.src[0], groups: t.groups, rows: t.rows,
				codeGap: t.codeGap, scaleGap: t.scaleGap, srcGap: t.srcGap,
				half: index(bf16), units: o.q.Format.Block.Cols / unitNEON, bits: bits, kind: kind, s: &s, c: &c,
			}))
		}
	}
	return fusedKernel{needs, bf16, groupNEON, false, supports, begin}
}

func scaleBy(needs cpu.Set, supports func(*Quantizer) bool, kind int) scaleKernel {
	return scaleKernel{needs, supports, func(o *output) func([]float32, []byte, []uint32) uint32 {
		s := o.neonScaling(kind, false)
		return func(factors []float32, scales []byte, amaxes []uint32) uint32 {
			return amaxOrFlagged(scalesNEON(&factors[0], &scales[0], &amaxes[0], len(amaxes)/groupNEON, kind, &s))
		}
	}}
}

func amaxNEON(size int, kernel func(amaxes *uint32, src *byte, n, extent int)) func([]uint32, []byte, int) {
	return func(amaxes []uint32, src []byte, extent int) { kernel(&amaxes[0], &src[0], len(src)/size, extent) }
}

func decodeNEON(needs cpu.Set, bits, extent int, kernel func(dst *float32, src *byte, scales *float32, n, extent int,
	t *decodeTables)) decodeKernel {
	return decodeKernel{needs, func(e *format.Scalar) bool { return e.Bits() == bits && e.HasNegativeZero() }, extent,
		func(dst []float32, src []byte, scales []float32, t *decodeTables) {
			kernel(&dst[0], &src[0], &scales[0], len(dst), extent, t)
		}}
}

// fence orders non-temporal stores, of which there are none.
func fence() {}
