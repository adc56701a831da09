//go:build !purego

package quant

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

var fusedKernels = []fusedKernel{
	{cpu.AVX512, false, groupBlocks, exponentBlocks(8, false), beginExponent(fuse8)},
	{cpu.AVX512, false, groupBlocks, exponentBlocks(6, false), beginExponent(fuse6)},
	{cpu.AVX512, false, groupBlocks, exponentBlocks(4, false), beginExponent(fuse4)},
	{cpu.AVX512, false, groupBlocks, exponentBlocks(8, true), beginExponent(fuseInt8)},
	{cpu.AVX512, false, groupBlocks, globalBlocks, beginGlobal(fuseGlobal4)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(8, false), beginExponent(fuse8BF16)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(6, false), beginExponent(fuse6BF16)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(4, false), beginExponent(fuse4BF16)},
	{cpu.AVX512, true, groupBlocks, exponentBlocks(8, true), beginExponent(fuseInt8BF16)},
	{cpu.AVX512, true, groupBlocks, globalBlocks, beginGlobal(fuseGlobal4BF16)},
	{cpu.AVX512, false, 1, bytes128, beginBytes(blocks128)},
	{cpu.AVX512, true, 1, bytes128, beginBytes(blocks128BF16)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(8, false), beginExponent(fuse8AVX2)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(6, false), beginExponent(fuse6AVX2)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(4, false), beginExponent(fuse4AVX2)},
	{cpu.AVX2, false, groupBlocksAVX2, exponentBlocks(8, true), beginExponent(fuseInt8AVX2)},
	{cpu.AVX2, false, groupBlocks, globalBlocks, beginGlobal(fuseGlobal4AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(8, false), beginExponent(fuse8BF16AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(6, false), beginExponent(fuse6BF16AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(4, false), beginExponent(fuse4BF16AVX2)},
	{cpu.AVX2, true, groupBlocksAVX2, exponentBlocks(8, true), beginExponent(fuseInt8BF16AVX2)},
	{cpu.AVX2, true, groupBlocks, globalBlocks, beginGlobal(fuseGlobal4BF16AVX2)},
	{cpu.AVX2, false, 1, bytes128, beginBytes(blocks128AVX2)},
	{cpu.AVX2, true, 1, bytes128, beginBytes(blocks128BF16AVX2)},
}

func beginBytes(kernel func(codes, scales, src *byte, blocks int, c *bytesConstants) uint64) func(*run) fusedCall {
	return func(r *run) fusedCall {
		plain := r.q.bytesConstants()
		past := plain
		past.stream = 1
		return func(codes, scales, src []byte, blocks int, stream bool) uint32 {
			c := &plain
			if stream {
				c = &past
			}
			a := kernel(&codes[0], &scales[0], &src[0], blocks, c)
			if a >= exponentMask {
				return flagged
			}
			return uint32(a)
		}
	}
}

var rowsKernels = []rowsKernel{
	{cpu.AVX512, false, rowsBy(rows)},
	{cpu.AVX512, true, rowsBy(rowsBF16)},
	{cpu.AVX2, false, rowsBy(rowsAVX2)},
	{cpu.AVX2, true, rowsBy(rowsBF16AVX2)},
}

func rowsBy(kernel func(codes, src, next *byte, rows, blocks, units, codeGap, srcGap, srcAhead, nextAhead int, factors, maxima *float32, c *bytesConstants)) func(rowsTile, *bytesConstants) {
	return func(t rowsTile, c *bytesConstants) {
		kernel(unsafe.SliceData(t.codes), unsafe.SliceData(t.src), unsafe.SliceData(t.next), t.rows, len(t.factors), t.units,
			t.codeGap, t.srcGap, t.srcAhead, t.nextAhead, &t.factors[0], &t.maxima[0], c)
	}
}

var amaxBF16Kernels = []amaxBF16Kernel{
	{cpu.AVX512, func(src []byte) uint32 { return uint32(amaxBF16(&src[0], len(src)/2)) }},
	{cpu.AVX2, amaxOfBF16},
}

var lineKernels = []lineKernel{
	{cpu.AVX512, 8, false, lineBy(line8), raiseLines},
	{cpu.AVX512, 4, false, lineBy(line4), raiseLines},
	{cpu.AVX512, 8, true, randomLineBy(lineRandom8), raiseLines},
	{cpu.AVX512, 4, true, randomLineBy(lineRandom4), raiseLines},
	{cpu.AVX2, 8, false, lineBytes, raiseLinesAVX2},
	{cpu.AVX2, 4, false, lineNibbles, raiseLinesAVX2},
	{cpu.AVX2, 8, true, randomLineBytes, raiseLinesAVX2},
	{cpu.AVX2, 4, true, randomLineNibbles, raiseLinesAVX2},
}

func lineBy(kernel func(codes *byte, src *float32, n int, factors *float32, c *lineConstants) uint64) func(codes []byte, src []float32, _ []uint32, factors []float32, c *lineConstants) uint32 {
	return func(codes []byte, src []float32, _ []uint32, factors []float32, c *lineConstants) uint32 {
		return uint32(kernel(&codes[0], &src[0], len(src), &factors[0], c))
	}
}

func randomLineBy(kernel func(codes *byte, src *float32, random *uint32, n int, factors *float32, c *lineConstants) uint64) func(codes []byte, src []float32, random []uint32, factors []float32, c *lineConstants) uint32 {
	return func(codes []byte, src []float32, random []uint32, factors []float32, c *lineConstants) uint32 {
		return uint32(kernel(&codes[0], &src[0], &random[0], len(src), &factors[0], c))
	}
}

func raiseLines(maxima, src []float32) { lineMaxima(&maxima[0], &src[0], len(src)) }

var philoxKernels = []philoxKernel{
	{cpu.AVX512, func(dst []uint32, first uint64, c *philoxConstants) {
		linePhilox(&dst[0], first, len(dst)/philoxUnit, c)
	}},
	{cpu.AVX2, func(dst []uint32, first uint64, c *philoxConstants) {
		linePhiloxAVX2(&dst[0], first, len(dst)/philoxUnit, c)
	}},
}

var hadamardKernels = []hadamardKernel{
	{cpu.AVX512, func(x []float32, signs *[hadamardSize]uint32, nan float32) {
		lineHadamard(&x[0], len(x)/hadamardSize, &signs[0], math.Float32bits(nan))
	}},
	{cpu.AVX2, func(x []float32, signs *[hadamardSize]uint32, nan float32) {
		lineHadamardAVX2(&x[0], len(x)/hadamardSize, &signs[0], math.Float32bits(nan))
	}},
}

// globalBlocks says that a kernel serves blocks of 16 elements of 4 bits under
// E4M3 scales and a global one, as Transformer Engine computes them.
func globalBlocks(q *Quantizer) bool {
	f := q.Format
	return f.Scale == format.E4M3 && f.Global && f.Block == Shape{1, 16} && f.Element.StoredBits() == 4 &&
		q.Arithmetic == EncodeFirst && q.signMagnitude()
}

// exponentBlocks says that a kernel serves blocks of 32 under E8M0 scales with
// elements of the given width.
func exponentBlocks(bits int, integer bool) func(*Quantizer) bool {
	return func(q *Quantizer) bool {
		f := q.Format
		if f.Scale != format.E8M0 || f.Block != (Shape{1, 32}) || f.Element.StoredBits() != bits || q.ZeroScale != ZeroScaleMin {
			return false
		}
		if integer {
			return f.Element.Integer && q.Rounding == format.NearestEven && q.NegativeZero == KeepNegativeZero
		}
		return q.signMagnitude()
	}
}

// beginExponent and beginGlobal take a kernel, and the one that writes codes past
// the caches.
func beginExponent(kernel func(codes, scales, src *byte, groups, stream int, c *exponentConstants) uint64) func(*run) fusedCall {
	return func(r *run) fusedCall {
		c := r.q.exponentConstants()
		return func(codes, scales, src []byte, groups int, stream bool) uint32 {
			return uint32(kernel(&codes[0], &scales[0], &src[0], groups, index(stream), &c))
		}
	}
}

func beginGlobal(kernel func(codes, scales, src *byte, groups, stream int, c *globalConstants) uint64) func(*run) fusedCall {
	return func(r *run) fusedCall {
		c := newGlobalConstants(r.q.Format.Element, r.global)
		return func(codes, scales, src []byte, groups int, stream bool) uint32 {
			return uint32(kernel(&codes[0], &scales[0], &src[0], groups, index(stream), &c))
		}
	}
}

var encodeKernels = []encodeKernel{
	{cpu.AVX512, false, encodeBy(encodeTimes)},
	{cpu.AVX512, true, encodeBy(encodeOver)},
	{cpu.AVX2, false, encodeLines(false)},
	{cpu.AVX2, true, encodeLines(true)},
}

func encodeBy(kernel func(codes *byte, src *float32, n int, factors *float32, extent int, c *encodeConstants) uint64) func([]byte, []float32, []float32, int, *encodeConstants) uint32 {
	return func(codes []byte, src, factors []float32, extent int, c *encodeConstants) uint32 {
		return uint32(kernel(&codes[0], &src[0], len(src), &factors[0], extent, c))
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
	{cpu.AVX512, func(amaxes []uint32, x []float32, extent int) {
		amaxes512(&amaxes[0], &x[0], len(x), extent)
	}, func(x []float32) uint32 {
		var amax uint32
		amaxes512(&amax, &x[0], len(x), len(x))
		return amax
	}},
	{cpu.AVX2, amaxesOf, func(x []float32) uint32 {
		var amax [1]uint32
		amaxesOf(amax[:], x, len(x))
		return amax[0]
	}},
}

var spreadKernels = []spreadKernel{
	{cpu.AVX512, func(dst, src []byte, width, lines, stride int) { spreadLines(&dst[0], &src[0], width, lines, stride) }},
	{cpu.AVX2, func(dst, src []byte, width, lines, stride int) {
		spreadLinesAVX2(&dst[0], &src[0], width, lines, stride)
	}},
}

var fetchKernels = []fetchKernel{
	{cpu.AVX2, func(src []byte, width, rows, stride int) { fetchRows(&src[0], width, rows, stride) }},
}

var transposeKernels = []transposeKernel{
	{cpu.AVX512, func(dst, src []float32, dstStride, srcStride, n int) {
		transpose512(&dst[0], &src[0], 4*dstStride, 4*srcStride, n)
	}},
	{cpu.AVX2, func(dst, src []float32, dstStride, srcStride, n int) {
		transposeAVX2(&dst[0], &src[0], 4*dstStride, 4*srcStride, 2*n)
	}},
}

var pairKernels = []pairKernel{
	{cpu.AVX512, func(dst, src []byte, dstStride, srcStride, n int) {
		transposeWords(&dst[0], &src[0], dstStride, srcStride, n)
	}},
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
