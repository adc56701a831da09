//go:build !purego

package quant

import (
	"math"
	"unsafe"
)

func init() {
	fusedKernels = []fusedKernel{
		{fuse8Needs, false, groupBlocks, true, exponentBlocks(8, false), fuseColumns(exponentOf, fuse8)},
		{fuse8Needs, false, groupBlocks, true, exponentBlocks(6, false), fuseColumns(exponentOf, fuse8)},
		{fuse4Needs, false, groupBlocks, true, exponentBlocks(4, false), fuseColumns(exponentOf, fuse4)},
		{fuseInt8Needs, false, groupBlocks, true, exponentBlocks(8, true), fuseColumns(exponentOf, fuseInt8)},
		{fuseGlobal4Needs, false, groupBlocks, true, globalBlocks, fuseColumns(globalOf, fuseGlobal4)},
		{fuse8BF16Needs, true, groupBlocks, true, exponentBlocks(8, false), fuseColumns(exponentOf, fuse8BF16)},
		{fuse8BF16Needs, true, groupBlocks, true, exponentBlocks(6, false), fuseColumns(exponentOf, fuse8BF16)},
		{fuse4BF16LookupNeeds, true, groupBlocks, true, exponentBlocks(4, false), fuseColumns(exponentNibblesOf, fuse4BF16Lookup)},
		{fuse4BF16Needs, true, groupBlocks, true, exponentBlocks(4, false), fuseColumns(exponentOf, fuse4BF16)},
		{fuseInt8BF16Needs, true, groupBlocks, true, exponentBlocks(8, true), fuseColumns(exponentOf, fuseInt8BF16)},
		{fuseGlobal4BF16LookupNeeds, true, groupBlocks, true, globalBlocks, fuseColumns(globalNibblesOf, fuseGlobal4BF16Lookup)},
		{fuseGlobal4BF16Needs, true, groupBlocks, true, globalBlocks, fuseColumns(globalOf, fuseGlobal4BF16)},
		{blocks128Needs, false, 1, false, bytes128, fuse(bytesOf, blocks128)},
		{blocks128BF16Needs, true, 1, false, bytes128, fuse(bytesOf, blocks128BF16)},
		{fuse8AVX2Needs, false, groupBlocksAVX2, false, exponentBlocks(8, false), fuse(exponentOf, fuse8AVX2)},
		{fuse8AVX2Needs, false, groupBlocksAVX2, false, exponentBlocks(6, false), fuse(exponentOf, fuse8AVX2)},
		{fuse4AVX2Needs, false, groupBlocksAVX2, false, exponentBlocks(4, false), fuse(exponentOf, fuse4AVX2)},
		{fuseInt8AVX2Needs, false, groupBlocksAVX2, false, exponentBlocks(8, true), fuse(exponentOf, fuseInt8AVX2)},
		{fuseGlobal4AVX2Needs, false, groupBlocks, false, globalBlocks, fuse(globalOf, fuseGlobal4AVX2)},
		{fuse8BF16AVX2Needs, true, groupBlocksAVX2, false, exponentBlocks(8, false), fuse(exponentWordsOf, fuse8BF16AVX2)},
		{fuse6BF16AVX2Needs, true, groupBlocksAVX2, false, exponentBlocks(6, false), fuse(exponentOf, fuse6BF16AVX2)},
		{fuse4BF16AVX2Needs, true, groupBlocksAVX2, false, exponentBlocks(4, false), fuse(exponentOf, fuse4BF16AVX2)},
		{fuseInt8BF16AVX2Needs, true, groupBlocksAVX2, false, exponentBlocks(8, true), fuse(exponentOf, fuseInt8BF16AVX2)},
		{fuseGlobal4BF16AVX2Needs, true, groupBlocks, false, globalBlocks, fuseLarge(globalCutsOf, fuseGlobal4BF16AVX2)},
		{blocks128AVX2Needs, false, 1, false, bytes128, fuse(bytesOf, blocks128AVX2)},
		{blocks128BF16AVX2Needs, true, 1, false, bytes128, fuse(bytesOf, blocks128BF16AVX2)},
	}
	scaleKernels = []scaleKernel{
		{exponentScalesNeeds, exponentScale, scaleBy(exponentOf, exponentScales)},
		{globalScalesNeeds, globalScale, scaleBy(globalOf, globalScales)},
		{byteScalesNeeds, bytesScale, scaleBy(bytesOf, byteScales)},
	}
	decodeKernels = []decodeKernel{
		{decodeBytesNeeds, signed(8), 32, byteTable(decodeBytes)},
		{decodeIntegersNeeds, integers, 32, valueTable(decodeIntegers)},
		{decodeSixesNeeds, ofBits(6), 32, byteTable(decodeSixes)},
		{decodeNibbles32Needs, ofBits(4), 32, valueTable(decodeNibbles32)},
		{decodeNibbles16Needs, ofBits(4), 16, valueTable(decodeNibbles16)},
		{decodeBytesAVX2Needs, signed(8), 32, decodeUnits(8, 32, decodeBytesAVX2)},
		{decodeIntegersAVX2Needs, integers, 32, decodeUnits(8, 32, decodeIntegersAVX2)},
		{decodeSixesAVX2Needs, ofBits(6), 32, decodeUnits(6, 32, decodeSixesAVX2)},
		{decodeNibbles32AVX2Needs, signed(4), 32, decodeUnits(4, 32, decodeNibbles32AVX2)},
		{decodeNibbles16AVX2Needs, signed(4), 16, decodeUnits(4, 16, decodeNibbles16AVX2)},
	}
}

func init() {
	bf16 := variant{bf16: true}
	add(&rowKernels, encodeRowsNeeds, variant{}, rowsBy(encodeRows, 4))
	add(&rowKernels, encodeRowsBF16Needs, bf16, rowsBy(encodeRowsBF16, 2))
	add(&rowKernels, encodeRowsAVX2Needs, variant{}, rowsBy(encodeRowsAVX2, 4))
	add(&rowKernels, encodeRowsBF16AVX2Needs, bf16, rowsBy(encodeRowsBF16AVX2, 2))
	// Rowwise and columnwise copies together read a tile twice: in a fused kernel, which also
	// raises the maxima of columns, and for the codes of columns. The second read comes from the
	// second-level cache, since rows whose stride is a multiple of 4 KiB share 12 lines of the first.
	// Kernels that did all in one read had 43 thousand lines of assembly. For 256×2048 elements on a
	// Zen 5 core these have 0.95 (MXFP8 and MXINT8 from BF16) to 1.12 of their speed, by medians of
	// alternating runs.
	add(&maximaKernels, columnMaximaNeeds, variant{}, maximaBy(columnMaxima))
	add(&maximaKernels, columnMaximaBF16Needs, bf16, maximaBy(columnMaximaBF16))
	add(&columnKernels, columnsNeeds, variant{}, columnsBy(columns))
	add(&columnKernels, columnsBF16Needs, bf16, columnsBy(columnsBF16))
	add(&columnKernels, columnsIntNeeds, variant{integer: true}, columnsBy(columnsInt))
	add(&columnKernels, columnsIntBF16Needs, variant{bf16: true, integer: true}, columnsBy(columnsIntBF16))
	add(&joinKernels, join4Needs, variant{bits: 4}, joinBy(join4))
	add(&joinKernels, joinRandom8Needs, variant{bits: 8, random: true}, joinRandomBy(joinRandom8))
	add(&joinKernels, joinRandom4Needs, variant{bits: 4, random: true}, joinRandomBy(joinRandom4))
	add(&joinKernels, join4AVX2Needs, variant{bits: 4}, joinNibblesAVX2)
	add(&joinKernels, joinRandom8AVX2Needs, variant{bits: 8, random: true}, joinRandomBytesAVX2)
	add(&joinKernels, joinRandom4AVX2Needs, variant{bits: 4, random: true}, joinRandomNibblesAVX2)
	add(&encodeKernels, encodeTimesNeeds, variant{}, encodeBy(encodeTimes))
	add(&encodeKernels, encodeOverNeeds, variant{divides: true}, encodeBy(encodeOver))
	add(&encodeKernels, encodeTimesAVX2Needs, variant{}, encodeAVX2(false))
	add(&encodeKernels, encodeTimesAVX2Needs, variant{divides: true}, encodeAVX2(true))
	add(&amaxKernels, amaxes512Needs, variant{}, amaxesBy(amaxes512, 4))
	add(&amaxKernels, amaxes512BF16Needs, bf16, amaxesBy(amaxes512BF16, 2))
	add(&amaxKernels, amaxesAVX2Needs, variant{}, raiseAVX2)
	add(&amaxKernels, amaxesBF16AVX2Needs, bf16, raiseBF16AVX2)
	add(&maxKernels, amaxes512Needs, variant{}, max512)
	add(&maxKernels, amaxes512BF16Needs, bf16, max512BF16)
	add(&maxKernels, amaxesAVX2Needs, variant{}, maxAVX2)
	add(&maxKernels, amaxesBF16AVX2Needs, bf16, maxBF16AVX2)
	add(&searchKernels, searchTimesNeeds, variant{}, searchBy(searchTimes))
	add(&searchKernels, searchOverNeeds, variant{divides: true}, searchBy(searchOver))
	add(&searchKernels, searchTimesWeightedNeeds, variant{weights: true}, searchWeightedBy(searchTimesWeighted))
	add(&searchKernels, searchOverWeightedNeeds, variant{divides: true, weights: true}, searchWeightedBy(searchOverWeighted))
	add(&searchKernels, searchTimesAVX2Needs, variant{}, searchBy(searchTimesAVX2))
	add(&searchKernels, searchOverAVX2Needs, variant{divides: true}, searchBy(searchOverAVX2))
	add(&searchKernels, searchTimesWeightedAVX2Needs, variant{weights: true}, searchWeightedBy(searchTimesWeightedAVX2))
	add(&searchKernels, searchOverWeightedAVX2Needs, variant{divides: true, weights: true}, searchWeightedBy(searchOverWeightedAVX2))
	add(&sumKernels, errorSumsTimesAVX2Needs, variant{}, sumsBy(errorSumsTimesAVX2))
	add(&sumKernels, errorSumsOverAVX2Needs, variant{divides: true}, sumsBy(errorSumsOverAVX2))
	add(&philoxKernels, fillPhiloxNeeds, variant{}, philoxBy(fillPhilox))
	add(&philoxKernels, fillPhiloxAVX2Needs, variant{}, philoxBy(fillPhiloxAVX2))
	add(&hadamardKernels, hadamardBlocksNeeds, variant{}, hadamardBy(hadamardBlocks))
	add(&hadamardKernels, hadamardBlocksAVX2Needs, variant{}, hadamardBy(hadamardBlocksAVX2))
	add(&spreadKernels, spreadRowsNeeds, variant{}, spreadBy(spreadRows))
	add(&spreadKernels, spreadRowsAVX2Needs, variant{}, spreadBy(spreadRowsAVX2))
	add(&transposeKernels, transpose512Needs, variant{}, transposeBy(transpose512, 1))
	add(&transposeKernels, transposeAVX2Needs, variant{}, transposeBy(transposeAVX2, 2))
	add(&transposeFourKernels, transposeFourNeeds, variant{}, transposeFourBy(transposeFour))
	add(&codesKernels, transposeCodesNeeds, variant{bits: 8}, codesBy(transposeCodes))
	add(&codesKernels, transposeWordsNeeds, variant{bits: 16}, codesBy(transposeWords))
}

const (
	groupBlocks     = 16 // of the groups of fused kernels
	groupBlocksAVX2 = 8  // of those for AVX2 with blocks of 32
)

// fusedArgs are the arguments of a fused kernel: those of rowGroups. internal/asm knows the fields of this type and of
// those below.
type fusedArgs struct {
	codes, scales, src        *byte
	groups, rows              int
	codeGap, scaleGap, srcGap int
	ahead, codeAhead          int
	stream                    int // not 0: with non-temporal stores
}

func (t *rowGroups) args() fusedArgs {
	return fusedArgs{
		codes: &t.codes[0], scales: &t.scales[0], src: &t.src[0], groups: t.groups, rows: t.rows,
		codeGap: t.codeGap, scaleGap: t.scaleGap, srcGap: t.srcGap, ahead: t.ahead, codeAhead: t.codeAhead, stream: index(t.stream),
	}
}

// fuseColumns takes a generated kernel with constants C that raises amaxes of columns, too.
func fuseColumns[C any](constants func(*output) C, kernel func(p fusedArgs, maxima *byte, c *C) uint64) func(*output) func(
	rowGroups) uint32 {
	return func(o *output) func(rowGroups) uint32 {
		c := constants(o)
		return func(t rowGroups) uint32 {
			return amaxOrFlagged(kernel(t.args(), unsafe.SliceData(t.maxima), &c))
		}
	}
}

// fuse takes a generated kernel with constants C.
func fuse[C any](constants func(*output) C, kernel func(p fusedArgs, c *C) uint64) func(*output) func(rowGroups) uint32 {
	return fuseLarge(func(o *output) *C {
		c := constants(o)
		return &c
	}, kernel)
}

// fuseLarge is fuse of constants that are too large for the stack.
func fuseLarge[C any](constants func(*output) *C, kernel func(p fusedArgs, c *C) uint64) func(*output) func(rowGroups) uint32 {
	return func(o *output) func(rowGroups) uint32 {
		c := constants(o)
		return func(t rowGroups) uint32 { return amaxOrFlagged(kernel(t.args(), c)) }
	}
}

func exponentWordsOf(o *output) exponentWords {
	return newExponentWords(o.q.Format.Element, exponentOf(o))
}

func exponentNibblesOf(o *output) exponentNibbles { return newExponentNibbles(exponentOf(o)) }

func globalCutsOf(o *output) *globalCuts { return newGlobalCuts(globalOf(o)) }

func globalNibblesOf(o *output) globalNibbles { return newGlobalNibbles(globalOf(o)) }

// scaleBy takes a generated kernel with constants C.
func scaleBy[C any](constants func(*output) C, kernel func(factors *float32, scales *byte, amaxes *uint32, n int, c *C) uint64) func(
	*output) func([]float32, []byte, []uint32) uint32 {
	return func(o *output) func([]float32, []byte, []uint32) uint32 {
		c := constants(o)
		return func(factors []float32, scales []byte, amaxes []uint32) uint32 {
			return uint32(kernel(&factors[0], &scales[0], &amaxes[0], len(amaxes)/scaleUnit, &c))
		}
	}
}

// maximaBy takes a kernel of four rows at a time. It takes each row that is left four times.
func maximaBy(kernel func(maxima *uint32, src *byte, n, fours, srcStride, ahead int)) func([]uint32, []byte, int, int, int) {
	return func(maxima []uint32, src []byte, rows, srcStride, ahead int) {
		n, fours := len(maxima)/tileSide, rows/4
		if fours > 0 {
			kernel(&maxima[0], &src[0], n, fours, srcStride, ahead)
		}
		for i := 4 * fours; i < rows; i++ {
			kernel(&maxima[0], &src[i*srcStride], n, 1, 0, 0)
		}
	}
}

func joinBy(kernel func(codes *byte, src *float32, n int, factors *float32, c *encodeConstants) uint64) func(codes []byte, src []float32,
	_ []uint32, factors []float32, c *encodeConstants) {
	return func(codes []byte, src []float32, _ []uint32, factors []float32, c *encodeConstants) {
		kernel(&codes[0], &src[0], len(src), &factors[0], c)
	}
}

func joinRandomBy(kernel func(codes *byte, src *float32, random *uint32, n int, factors *float32, c *encodeConstants) uint64) func(
	codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
	return func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
		kernel(&codes[0], &src[0], &random[0], len(src), &factors[0], c)
	}
}

func encodeBy(kernel func(codes *byte, src *float32, n int, factors *float32, extent int, c *encodeConstants) uint64) func([]byte,
	[]float32, []float32, int, *encodeConstants) {
	return func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
		kernel(&codes[0], &src[0], len(src), &factors[0], extent, c)
	}
}

func searchBy(kernel func(errors *float64, src *float32, groups int, factors, decodes *float32, n int, c *searchConstants)) searchKernel {
	return func(errors []float64, src, _, factors, decodes []float32, n int, c *searchConstants) {
		kernel(&errors[0], &src[0], len(src)/searchUnit, &factors[0], &decodes[0], n, c)
	}
}

func searchWeightedBy(kernel func(errors *float64, src, weights *float32, groups int, factors, decodes *float32, n int,
	c *searchConstants)) searchKernel {
	return func(errors []float64, src, weights, factors, decodes []float32, n int, c *searchConstants) {
		kernel(&errors[0], &src[0], &weights[0], len(src)/searchUnit, &factors[0], &decodes[0], n, c)
	}
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

func byteTable(kernel func(dst *float32, src *byte, scales *float32, n int, table *byte)) func([]float32, []byte, []float32,
	*decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		kernel(&dst[0], &src[0], &scales[0], len(dst), &t.bytes[0])
	}
}

func valueTable(kernel func(dst *float32, src *byte, scales *float32, n int, table *float32)) func([]float32, []byte, []float32,
	*decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		kernel(&dst[0], &src[0], &scales[0], len(dst), &t.values[0])
	}
}

func amaxesBy(kernel func(amaxes *uint32, src *byte, n, extent int), size int) func([]uint32, []byte, int) {
	return func(amaxes []uint32, src []byte, extent int) { kernel(&amaxes[0], &src[0], len(src)/size, extent) }
}

// These do not take the kernel as an argument, so that amax stays on the stack.

func max512(src []byte) (amax uint32) {
	amaxes512(&amax, &src[0], len(src)/4, len(src))
	return amax
}

func max512BF16(src []byte) (amax uint32) {
	amaxes512BF16(&amax, &src[0], len(src)/2, len(src))
	return amax
}

func maxAVX2(src []byte) uint32 {
	var amax [1]uint32
	raiseAVX2(amax[:], src, len(src))
	return amax[0]
}

func maxBF16AVX2(src []byte) uint32 {
	var amax [1]uint32
	raiseBF16AVX2(amax[:], src, len(src))
	return amax[0]
}

func philoxBy(kernel func(dst *uint32, first uint64, n int, c *philoxConstants)) func([]uint32, uint64, *philoxConstants) {
	return func(dst []uint32, first uint64, c *philoxConstants) { kernel(&dst[0], first, len(dst)/philoxUnit, c) }
}

func hadamardBy(kernel func(x *float32, n int, signs *uint32, nan uint32)) func([]float32, *[hadamardSize]uint32, float32) {
	return func(x []float32, signs *[hadamardSize]uint32, nan float32) {
		kernel(&x[0], len(x)/hadamardSize, &signs[0], math.Float32bits(nan))
	}
}

func spreadBy(kernel func(dst, src *byte, width, n, stride int)) func([]byte, []byte, int, int, int) {
	return func(dst, src []byte, width, n, stride int) { kernel(&dst[0], &src[0], width, n, stride) }
}

// transposeBy takes a kernel that transposes transposeSize rows in the given number of steps.
func transposeBy(kernel func(dst, src *float32, dstStride, srcStride, n int), steps int) func([]float32, []float32, int, int, int) {
	return func(dst, src []float32, dstStride, srcStride, n int) {
		kernel(&dst[0], &src[0], 4*dstStride, 4*srcStride, steps*n)
	}
}
