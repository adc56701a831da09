//go:build !purego

package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

var fusedKernels = []fusedKernel{
	{cpu.AVX512, false, groupBlocks, exponentBlocks(8, false), fuse(exponentOf, fuse8)},
	{cpu.AVX512, false, groupBlocks, exponentBlocks(6, false), fuse(exponentOf, fuse8)},
	{cpu.AVX512, false, groupBlocks, exponentBlocks(4, false), fuse(exponentOf, fuse4)},
	{cpu.AVX512, false, groupBlocks, exponentBlocks(8, true), fuse(exponentOf, fuseInt8)},
	{cpu.AVX512, false, groupBlocks, globalBlocks, fuse(globalOf, fuseGlobal4)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(8, false), fuse(exponentOf, fuse8BF16)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(6, false), fuse(exponentOf, fuse8BF16)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(4, false), fuse(exponentOf, fuse4BF16)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(8, true), fuse(exponentOf, fuseInt8BF16)},
	{cpu.AVX512, true, groupBlocks, globalBlocks, fuse(globalOf, fuseGlobal4BF16)},
	{cpu.AVX512, false, 1, bytes128, fuse(bytesOf, blocks128)},
	{cpu.AVX512, true, 1, bytes128, fuse(bytesOf, blocks128BF16)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(8, false), fuse(exponentOf, fuse8AVX2)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(6, false), fuse(exponentOf, fuse8AVX2)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(4, false), fuse(exponentOf, fuse4AVX2)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(8, true), fuse(exponentOf, fuseInt8AVX2)},
	{cpu.AVX2, false, groupBlocks, globalBlocks, fuse(globalOf, fuseGlobal4AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(8, false), fuse(exponentOf, fuse8BF16AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(6, false), fuse(exponentOf, fuse8BF16AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(4, false), fuse(exponentOf, fuse4BF16AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(8, true), fuse(exponentOf, fuseInt8BF16AVX2)},
	{cpu.AVX2, true, groupBlocks, globalBlocks, fuse(globalOf, fuseGlobal4BF16AVX2)},
	{cpu.AVX2, false, 1, bytes128, fuse(bytesOf, blocks128AVX2)},
	{cpu.AVX2, true, 1, bytes128, fuse(bytesOf, blocks128BF16AVX2)},
}

const (
	groupBlocks     = 16 // of the groups of fused kernels
	groupBlocksAVX2 = 8  // of those for AVX2 with blocks of 32
)

// fuse takes a generated kernel with constants C.
func fuse[C any](constants func(*output) C, kernel func(codes, scales, src *byte, groups, rows, codeGap, scaleGap, srcGap, ahead, codeAhead, stream int, c *C) uint64) func(*output) func(rowGroups) uint32 {
	return func(o *output) func(rowGroups) uint32 {
		c := constants(o)
		return func(t rowGroups) uint32 {
			amax := kernel(&t.codes[0], &t.scales[0], &t.src[0], t.groups, t.rows, t.codeGap, t.scaleGap, t.srcGap, t.ahead, t.codeAhead, index(t.stream), &c)
			if amax >= exponentMask {
				return flagged
			}
			return uint32(amax)
		}
	}
}

func exponentOf(o *output) exponentConstants { return o.q.exponentConstants() }

func globalOf(o *output) globalConstants { return newGlobalConstants(o.q.Format.Element, o.global) }

func bytesOf(o *output) bytesConstants { return o.q.bytesConstants() }

var scaleKernels = []scaleKernel{
	{cpu.AVX512, exponentScale, scaleBy(exponentOf, exponentScales)},
	{cpu.AVX512, globalScale, scaleBy(globalOf, globalScales)},
	{cpu.AVX512, bytesScale, scaleBy(bytesOf, byteScales)},
}

// scaleBy takes a generated kernel with constants C.
func scaleBy[C any](constants func(*output) C, kernel func(factors *float32, scales *byte, amaxes *uint32, n int, c *C) uint64) func(*output) scaleFunc {
	return func(o *output) scaleFunc {
		c := constants(o)
		return func(factors []float32, scales []byte, amaxes []uint32) uint32 {
			return uint32(kernel(&factors[0], &scales[0], &amaxes[0], len(amaxes)/scaleUnit, &c))
		}
	}
}

var rowKernels = []rowKernel{
	{cpu.AVX512, false, rowsBy(encodeRows, 4)},
	{cpu.AVX512, true, rowsBy(encodeRowsBF16, 2)},
	{cpu.AVX2, false, rowsBy(encodeRowsAVX2, 4)},
	{cpu.AVX2, true, rowsBy(encodeRowsBF16AVX2, 2)},
}

func rowsBy(kernel func(codes, src *byte, factors *float32, rows, blocks, units, codeGap, srcGap, factorGap, ahead, stream int, c *encodeConstants), size int) func(rowPart, *encodeConstants) {
	return func(t rowPart, c *encodeConstants) {
		width := t.blocks * t.units * rowUnit
		kernel(&t.codes[0], &t.src[0], &t.factors[0], t.rows, t.blocks, t.units, t.codeStride-width, t.srcStride-size*width, 4*(t.factorStride-t.blocks), t.ahead, index(t.stream), c)
	}
}

var columnKernels = []columnKernel{
	{cpu.AVX512, false, false, maximaBy(columnMaxima), columnsBy(columns)},
	{cpu.AVX512, false, true, maximaBy(columnMaxima), columnsBy(columnsInt)},
	{cpu.AVX512, true, false, maximaBy(columnMaximaBF16), columnsBy(columnsBF16)},
	{cpu.AVX512, true, true, maximaBy(columnMaximaBF16), columnsBy(columnsIntBF16)},
}

func maximaBy(kernel func(maxima *uint32, src *byte, n, rows, srcStride, ahead int)) func([]uint32, []byte, int, int, int) {
	return func(maxima []uint32, src []byte, rows, srcStride, ahead int) {
		kernel(&maxima[0], &src[0], len(maxima)/tileSide, rows, srcStride, ahead)
	}
}

func columnsBy(kernel func(codes, src *byte, factors *float32, n, blockRows, codeStride, srcStride, factorStride, ahead, store int, c *encodeConstants)) func(columnPart, *encodeConstants) {
	return func(t columnPart, c *encodeConstants) {
		kernel(&t.codes[0], &t.src[0], &t.factors[0], t.n, t.blockRows, t.codeStride, t.srcStride, t.factorStride, t.ahead, t.store(), c)
	}
}

var joinKernels = []joinKernel{
	{cpu.AVX512, 4, false, joinBy(join4)},
	{cpu.AVX512, 8, true, joinRandomBy(joinRandom8)},
	{cpu.AVX512, 4, true, joinRandomBy(joinRandom4)},
	{cpu.AVX2, 4, false, joinNibblesAVX2},
	{cpu.AVX2, 8, true, joinRandomBytesAVX2},
	{cpu.AVX2, 4, true, joinRandomNibblesAVX2},
}

func joinBy(kernel func(codes *byte, src *float32, n int, factors *float32, c *encodeConstants) uint64) func(codes []byte, src []float32, _ []uint32, factors []float32, c *encodeConstants) {
	return func(codes []byte, src []float32, _ []uint32, factors []float32, c *encodeConstants) {
		kernel(&codes[0], &src[0], len(src), &factors[0], c)
	}
}

func joinRandomBy(kernel func(codes *byte, src *float32, random *uint32, n int, factors *float32, c *encodeConstants) uint64) func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
	return func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
		kernel(&codes[0], &src[0], &random[0], len(src), &factors[0], c)
	}
}

var philoxKernels = []philoxKernel{
	{cpu.AVX512, func(dst []uint32, first uint64, c *philoxConstants) {
		fillPhilox(&dst[0], first, len(dst)/philoxUnit, c)
	}},
	{cpu.AVX2, func(dst []uint32, first uint64, c *philoxConstants) {
		fillPhiloxAVX2(&dst[0], first, len(dst)/philoxUnit, c)
	}},
}

var hadamardKernels = []hadamardKernel{
	{cpu.AVX512, func(x []float32, signs *[hadamardSize]uint32, nan float32) {
		hadamardBlocks(&x[0], len(x)/hadamardSize, &signs[0], math.Float32bits(nan))
	}},
	{cpu.AVX2, func(x []float32, signs *[hadamardSize]uint32, nan float32) {
		hadamardBlocksAVX2(&x[0], len(x)/hadamardSize, &signs[0], math.Float32bits(nan))
	}},
}

// globalBlocks reports whether a kernel supports q: blocks of 16 elements of 4 bits under
// E4M3 scales and a global one, as Transformer Engine computes them.
func globalBlocks(q *Quantizer) bool {
	f := q.Format
	return f.Scale == format.E4M3 && f.Global && f.Block == Shape{1, 16} && f.Element.StoredBits() == 4 &&
		q.Arithmetic == EncodeFirst && q.signMagnitude()
}

// exponentBlocks reports whether a kernel supports q: blocks of 32 under E8M0 scales with
// elements of the given width.
func exponentBlocks(bits int, integer bool) func(*Quantizer) bool {
	return func(q *Quantizer) bool {
		f := q.Format
		if f.Scale != format.E8M0 || f.Block != (Shape{1, 32}) || f.Element.StoredBits() != bits || q.UnitZeroScale {
			return false
		}
		if integer {
			return f.Element.Integer && q.Rounding == format.NearestEven && q.NegativeZero == KeepNegativeZero
		}
		return q.signMagnitude()
	}
}

// exponentScale, globalScale and bytesScale say which scales the kernels compute.
func exponentScale(q *Quantizer) bool {
	return q.Format.Scale == format.E8M0 && !q.UnitZeroScale
}

func globalScale(q *Quantizer) bool {
	return q.Format.Scale == format.E4M3 && q.Format.Global && q.Arithmetic == EncodeFirst
}

func bytesScale(q *Quantizer) bool {
	return q.Format.Scale == format.F32 && q.Arithmetic == EncodeFirst
}

// bytes128 reports whether a kernel supports q: blocks of 128 elements of 8 bits under FP32
// scales, as Transformer Engine computes them.
func bytes128(q *Quantizer) bool {
	return q.Format.Block == Shape{1, 128} && q.Format.Element.StoredBits() == 8 && bytesScale(q) && q.signMagnitude()
}

var encodeKernels = []encodeKernel{
	{cpu.AVX512, false, encodeBy(encodeTimes)},
	{cpu.AVX512, true, encodeBy(encodeOver)},
	{cpu.AVX2, false, encodeAVX2(false)},
	{cpu.AVX2, true, encodeAVX2(true)},
}

func encodeBy(kernel func(codes *byte, src *float32, n int, factors *float32, extent int, c *encodeConstants) uint64) encodeFunc {
	return func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
		kernel(&codes[0], &src[0], len(src), &factors[0], extent, c)
	}
}

var searchKernels = []searchKernel{
	{cpu.AVX512, false, searchBy(searchTimes)},
	{cpu.AVX512, true, searchBy(searchOver)},
	{cpu.AVX2, false, searchBy(searchTimesAVX2)},
	{cpu.AVX2, true, searchBy(searchOverAVX2)},
}

func searchBy(kernel func(errors *float64, src *float32, groups int, factors, decodes *float32, n int, c *searchConstants)) searchFunc {
	return func(errors []float64, src, factors, decodes []float32, n int, c *searchConstants) {
		kernel(&errors[0], &src[0], len(src)/searchUnit, &factors[0], &decodes[0], n, c)
	}
}

var amaxKernels = []amaxKernel{
	{cpu.AVX512, false, func(amaxes []uint32, src []byte, extent int) {
		amaxes512(&amaxes[0], &src[0], len(src)/4, extent)
	}, func(src []byte) (amax uint32) {
		amaxes512(&amax, &src[0], len(src)/4, len(src))
		return amax
	}},
	{cpu.AVX512, true, func(amaxes []uint32, src []byte, extent int) {
		amaxes512BF16(&amaxes[0], &src[0], len(src)/2, extent)
	}, func(src []byte) (amax uint32) {
		amaxes512BF16(&amax, &src[0], len(src)/2, len(src))
		return amax
	}},
	{cpu.AVX2, false, raiseAVX2, func(src []byte) uint32 {
		var amax [1]uint32
		raiseAVX2(amax[:], src, len(src))
		return amax[0]
	}},
	{cpu.AVX2, true, raiseBF16AVX2, func(src []byte) uint32 {
		var amax [1]uint32
		raiseBF16AVX2(amax[:], src, len(src))
		return amax[0]
	}},
}

var spreadKernels = []spreadKernel{
	{cpu.AVX512, func(dst, src []byte, width, n, stride int) { spreadRows(&dst[0], &src[0], width, n, stride) }},
	{cpu.AVX2, func(dst, src []byte, width, n, stride int) {
		spreadRowsAVX2(&dst[0], &src[0], width, n, stride)
	}},
}

var transposeKernels = []transposeKernel{
	{cpu.AVX512, func(dst, src []float32, dstStride, srcStride, n int) {
		transpose512(&dst[0], &src[0], 4*dstStride, 4*srcStride, n)
	}},
	{cpu.AVX2, func(dst, src []float32, dstStride, srcStride, n int) {
		transposeAVX2(&dst[0], &src[0], 4*dstStride, 4*srcStride, 2*n)
	}},
}

var codesKernels = []codesKernel{
	{cpu.AVX512, 1, codesBy(transposeCodes)},
	{cpu.AVX512, 2, codesBy(transposeWords)},
}

func codesBy(kernel func(codes, src *byte, n, codeStride, srcStride, store int)) func([]byte, []byte, int, int, int, bool) {
	return func(dst, src []byte, n, dstStride, srcStride int, stream bool) {
		store := 8
		if stream {
			store = -8
		}
		kernel(&dst[0], &src[0], n, dstStride, srcStride, store)
	}
}

var decodeKernels = []decodeKernel{
	{cpu.AVX512, floatBytes, 32, byteTable(decodeBytes)},
	{cpu.AVX512, integers, 32, valueTable(decodeIntegers)},
	{cpu.AVX512, ofBits(6), 32, byteTable(decodeSixes)},
	{cpu.AVX512, ofBits(4), 32, valueTable(decodeNibbles32)},
	{cpu.AVX512, ofBits(4), 16, valueTable(decodeNibbles16)},
	{cpu.AVX2, floatBytes, 32, decodeUnits(8, 32, decodeBytesAVX2)},
	{cpu.AVX2, integers, 32, decodeUnits(8, 32, decodeIntegersAVX2)},
	{cpu.AVX2, ofBits(6), 32, decodeUnits(6, 32, decodeSixesAVX2)},
	{cpu.AVX2, ofBits(4), 32, decodeUnits(4, 32, decodeNibbles32AVX2)},
	{cpu.AVX2, ofBits(4), 16, decodeUnits(4, 16, decodeNibbles16AVX2)},
}

func floatBytes(e *format.Scalar) bool {
	return e.Bits() == 8 && e.HasNegativeZero()
}

func integers(e *format.Scalar) bool { return e.Integer }

func ofBits(bits int) func(*format.Scalar) bool {
	return func(e *format.Scalar) bool { return e.Bits() == bits }
}

func byteTable(kernel func(dst *float32, src *byte, scales *float32, n int, table *byte)) func([]float32, []byte, []float32, *decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		kernel(&dst[0], &src[0], &scales[0], len(dst), &t.bytes[0])
	}
}

func valueTable(kernel func(dst *float32, src *byte, scales *float32, n int, table *float32)) func([]float32, []byte, []float32, *decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		kernel(&dst[0], &src[0], &scales[0], len(dst), &t.values[0])
	}
}
