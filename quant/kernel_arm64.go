//go:build !purego

package quant

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
)

func init() {
	decodeKernels = []decodeKernel{
		decodeNEON(decodeBytesNEONNeeds, 8, 32, decodeBytesNEON),
		decodeNEON(decodeNibblesNEONNeeds, 4, 32, decodeNibblesNEON),
		decodeNEON(decodeNibblesNEONNeeds, 4, 16, decodeNibblesNEON),
		{decodeIntegersNEONNeeds, integers, 32, decodeUnits(8, 32, decodeIntegersNEON)},
		{decodeSixesNEONNeeds, ofBits(6), 32, decodeUnits(6, 32, decodeSixesNEON)},
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
	for _, bf16 := range []bool{false, true} {
		size := 4 - 2*index(bf16)
		add(&rowKernels, rowsNEONNeeds, variant{bf16: bf16}, rowsBy(func(p rowsArgs, c *encodeConstants) {
			rowsNEON(p, index(bf16), c)
		}, size))
		add(&maximaKernels, columnMaximaNEONNeeds, variant{bf16: bf16}, func(maxima []uint32, src []byte, rows, srcStride, _ int) {
			columnMaximaNEON(&maxima[0], &src[0], len(maxima)/unitNEON, rows, srcStride, index(bf16))
		})
		for _, integer := range []bool{false, true} {
			add(&columnKernels, columnsNEONNeeds, variant{bf16: bf16, integer: integer}, func(t columnPart, c *encodeConstants) {
				bits := t.bits
				if integer {
					bits = 0
				}
				columnsBy(func(p columnsArgs, c *encodeConstants) { columnsNEON(p, index(bf16), bits, c) })(t, c)
			})
		}
	}
	for _, bits := range []int{8, 4} {
		add(&joinKernels, joinRandomNEONNeeds, variant{bits: bits, random: true}, joinUnits(bits, joinRandomNEON))
	}
	add(&joinKernels, joinNEONNeeds, variant{bits: 4}, joinUnits(4, func(codes *byte, src *float32, _ *uint32, n int, factors *float32,
		bits int, c *encodeConstants) {
		joinNEON(codes, src, n, factors, bits, c)
	}))
	for _, divides := range []bool{false, true} {
		for _, weighted := range []bool{false, true} {
			add(&searchKernels, searchNEONNeeds, variant{divides: divides, weights: weighted}, func(errors []float64, src, weights, factors,
				decodes []float32, n int, c *searchConstants) {
				searchNEON(&errors[0], &src[0], unsafe.SliceData(weights), len(src)/searchUnit, &factors[0], &decodes[0], n, index(divides), c)
			})
		}
	}
	for _, divides := range []bool{false, true} {
		add(&sumKernels, errorSumsNEONNeeds, variant{divides: divides}, sumsBy(func(p sumArgs, c *sumConstants) {
			errorSumsNEON(p, index(divides), c)
		}))
	}
	add(&transposeKernels, transposeNEONNeeds, variant{}, func(dst, src []float32, dstStride, srcStride, n int) {
		const side = 4 // of a unit
		down, right := transposeSize*n/side, transposeSize/side
		transposeNEON((*byte)(unsafe.Pointer(&dst[0])), (*byte)(unsafe.Pointer(&src[0])), down, right, 4*dstStride, 4*srcStride)
	})
	add(&transposeFourKernels, transposeFourNEONNeeds, variant{}, transposeFourBy(transposeFourNEON))
	add(&codesKernels, transposeCodesNEONNeeds, variant{bits: 8}, codesNEON(1, transposeCodesNEON))
	add(&codesKernels, transposeWordsNEONNeeds, variant{bits: 16}, codesNEON(2, transposeWordsNEON))
	add(&philoxKernels, philoxNEONNeeds, variant{}, func(dst []uint32, first uint64, c *philoxConstants) {
		philoxNEON(&dst[0], first, len(dst)/unitNEON, c)
	})
	add(&hadamardKernels, hadamardNEONNeeds, variant{}, func(x []float32, signs *[hadamardSize]uint32, nan float32) {
		hadamardNEON(&x[0], len(x)/hadamardSize, &signs[0], math.Float32bits(nan))
	})
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

// neonScaling returns the constants.
func (o *output) neonScaling(kind int) neonScaling {
	bits := math.Float32bits
	switch kind {
	case neonExponent:
		c := exponentOf(o)
		return neonScaling{c.low, c.span, c.ratio, c.up, c.down, c.factor}
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

func fuseBy(needs cpu.Set, bf16 bool, supports condition[*Quantizer], kind int) fusedKernel {
	begin := func(o *output) func(rowGroups) uint32 {
		e := o.q.Format.Element
		s, c, bits := o.neonScaling(kind), newEncodeConstants(e), e.StoredBits()
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

// joinUnits returns a kernel for rows that end anywhere by one that takes units.
func joinUnits(bits int, kernel func(codes *byte, src *float32, random *uint32, n int, factors *float32, bits int,
	c *encodeConstants)) func([]byte, []float32, []uint32, []float32, *encodeConstants) {
	return func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
		whole := len(src) / unitNEON * unitNEON
		if whole > 0 {
			kernel(&codes[0], &src[0], unsafe.SliceData(random), whole/unitNEON, &factors[0], bits, c)
		}
		if whole < len(src) {
			end := newRowTail(whole, src, random, factors)
			kernel(&end.codes[0], &end.src[0], &end.random[0], 1, &end.factors[0], bits, c)
			copy(codes[whole*bits/8:ceilDiv(len(src)*bits, 8)], end.codes[:])
		}
	}
}

// codesNEON returns a kernel of tiles of codes of size bytes by one that transposes units of 16 bytes, four to a side of a tile.
func codesNEON(size int, kernel func(dst, src *byte, down, right, dstStride, srcStride int)) func([]byte, []byte, int, int, int, bool) {
	const units = 4
	return func(dst, src []byte, n, dstStride, srcStride int, _ bool) {
		for i := range n {
			kernel(&dst[i*cacheLine/size*dstStride], &src[i*cacheLine], units, units, dstStride, srcStride)
		}
	}
}

func scaleBy(needs cpu.Set, supports condition[*Quantizer], kind int) scaleKernel {
	return scaleKernel{needs, supports, func(o *output) func([]float32, []byte, []uint32) uint32 {
		s := o.neonScaling(kind)
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
	return decodeKernel{needs, signed(bits), extent,
		func(dst []float32, src []byte, scales []float32, t *decodeTables) {
			kernel(&dst[0], &src[0], &scales[0], len(dst), extent, t)
		}}
}

// fence orders non-temporal stores, of which there are none.
func fence() {}
