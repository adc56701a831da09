//go:build !purego

package quant

import (
	"math"

	"github.com/microscale-go/microscale/internal/cpu"
)

var bothKernels = []bothKernel{
	{cpu.AVX512, false, 32, exponentBlocks(8, false), beginBoth(tileConstants, both8, both8Stream), beginColumns(tileConstants, columnTiles8, columnTiles8Stream), false},
	{cpu.AVX512, false, 32, exponentBlocks(6, false), beginBoth(tileConstants, both6, nil), beginColumns(tileConstants, columnTiles6, nil), true},
	{cpu.AVX512, false, 32, exponentBlocks(4, false), beginBoth(tileConstants, both4, nil), beginColumns(tileConstants, columnTiles4, nil), true},
	{cpu.AVX512, false, 32, exponentBlocks(8, true), beginBoth(tileConstants, bothInt8, bothInt8Stream), beginColumns(tileConstants, columnTilesInt8, columnTilesInt8Stream), false},
	{cpu.AVX512, false, 16, globalBlocks, beginBoth(ofGlobal, bothGlobal4, nil), beginColumns(ofGlobal, columnTilesGlobal4, nil), true},
	{cpu.AVX512, true, 32, exponentBlocks(8, false), beginBoth(tileConstants, both8BF16, both8BF16Stream), beginColumns(tileConstants, columnTiles8BF16, columnTiles8BF16Stream), false},
	{cpu.AVX512, true, 32, exponentBlocks(6, false), beginBoth(tileConstants, both6BF16, nil), beginColumns(tileConstants, columnTiles6BF16, nil), true},
	{cpu.AVX512, true, 32, exponentBlocks(4, false), beginBoth(tileConstants, both4BF16, nil), beginColumns(tileConstants, columnTiles4BF16, nil), true},
	{cpu.AVX512, true, 32, exponentBlocks(8, true), beginBoth(tileConstants, bothInt8BF16, bothInt8BF16Stream), beginColumns(tileConstants, columnTilesInt8BF16, columnTilesInt8BF16Stream), false},
	{cpu.AVX512, true, 16, globalBlocks, beginBoth(ofGlobal, bothGlobal4BF16, nil), beginColumns(ofGlobal, columnTilesGlobal4BF16, nil), true},
}

// A bothFunc is a generated kernel with constants C.
type bothFunc[C any] func(rowCodes, rowScales, columnCodes, columnScales, src *byte, tiles, rowStride, rowScaleStride, columnStride, columnScaleStride, srcStride, next int, c *C) uint64

// beginBoth takes a kernel, and the one that writes codes past the caches where
// there is one.
func beginBoth[C any](constants func(*run) C, kernel, stream bothFunc[C]) func(*run) bothCall {
	return func(r *run) bothCall {
		c := constants(r)
		return func(t tiles) uint32 {
			f := kernel
			if stream != nil && t.byRow.streamsFrom(r) && t.byColumn.streamsFrom(r) {
				f = stream
			}
			rowCodes, rowScales := t.byRow.pointers()
			columnCodes, columnScales := t.byColumn.pointers()
			return uint32(f(rowCodes, rowScales, columnCodes, columnScales, &t.src[0], t.n, t.byRow.codeStride, t.byRow.scaleStride, t.byColumn.codeStride, t.byColumn.scaleStride, t.srcStride, t.next, &c))
		}
	}
}

// A columnsFunc is a generated kernel for the columnwise copy alone.
type columnsFunc[C any] func(columnCodes, columnScales, src *byte, tiles, rows, columnStride, columnScaleStride, srcStride, next int, c *C) uint64

// beginColumns is beginBoth of those.
func beginColumns[C any](constants func(*run) C, kernel, stream columnsFunc[C]) func(*run) bothCall {
	return func(r *run) bothCall {
		c := constants(r)
		return func(t tiles) uint32 {
			f := kernel
			if stream != nil && t.byColumn.streamsFrom(r) {
				f = stream
			}
			codes, scales := t.byColumn.pointers()
			return uint32(f(codes, scales, &t.src[0], t.n, t.rows, t.byColumn.codeStride, t.byColumn.scaleStride, t.srcStride, t.next, &c))
		}
	}
}

// ofGlobal returns the constants of a run with a global scale.
func ofGlobal(r *run) globalConstants { return newGlobalConstants(r.q.Format.Element, r.global) }

var factorKernels = []factorKernel{
	{cpu.AVX512, false, factoredBy(bothKnown8, bothKnown8Stream), factoredSquare(bothSquare8, bothSquare8Stream), factoredColumns(columnTilesKnown8, columnTilesKnown8Stream), maximaBy(tileMaxima), factorsOf},
	{cpu.AVX512, true, factoredBy(bothKnown8BF16, bothKnown8BF16Stream), factoredSquare(bothSquare8BF16, bothSquare8BF16Stream), factoredColumns(columnTilesKnown8BF16, columnTilesKnown8BF16Stream), maximaBy(tileMaximaBF16), factorsOf},
}

func factoredBy(kernel, stream func(rowCodes, columnCodes, src *byte, rowFactors, columnFactors *float32, tiles, rowStride, columnStride, srcStride, next int, c *bytesConstants) uint64) func(factoredTiles, *bytesConstants) uint32 {
	return func(t factoredTiles, c *bytesConstants) uint32 {
		f := kernel
		if t.stream {
			f = stream
		}
		return uint32(f(&t.byRow.codes[0], &t.byColumn.codes[0], &t.src[0], &t.rowFactors[0], &t.columnFactors[0], t.n, t.byRow.codeStride, t.byColumn.codeStride, t.srcStride, t.next, c))
	}
}

func factoredSquare(kernel, stream func(rowCodes, columnCodes, src *byte, columnFactors *float32, tiles, rowStride, columnStride, srcStride, next int, c *bytesConstants) uint64) func(factoredTiles, *bytesConstants) uint32 {
	return func(t factoredTiles, c *bytesConstants) uint32 {
		f := kernel
		if t.stream {
			f = stream
		}
		return uint32(f(&t.byRow.codes[0], &t.byColumn.codes[0], &t.src[0], &t.columnFactors[0], t.n, t.byRow.codeStride, t.byColumn.codeStride, t.srcStride, t.next, c))
	}
}

func factoredColumns(kernel, stream func(columnCodes, src *byte, columnFactors *float32, tiles, rows, columnStride, srcStride, next int, c *bytesConstants) uint64) func(factoredTiles, *bytesConstants) uint32 {
	return func(t factoredTiles, c *bytesConstants) uint32 {
		f := kernel
		if t.stream {
			f = stream
		}
		return uint32(f(&t.byColumn.codes[0], &t.src[0], &t.columnFactors[0], t.n, t.rows, t.byColumn.codeStride, t.srcStride, t.next, c))
	}
}

func maximaBy(kernel func(rows, columns *float32, src *byte, groups, srcStride int)) func(rows, columns []uint32, src []byte, srcStride int) {
	return func(rows, columns []uint32, src []byte, srcStride int) {
		kernel(&asFloats(rows)[0], &asFloats(columns)[0], &src[0], len(rows)/factorGroup, srcStride)
	}
}

func factorsOf(factors, scales []float32, amaxes []uint32, c *bytesConstants) {
	byteFactors(&factors[0], &scales[0], &asFloats(amaxes)[0], len(amaxes)/factorGroup, c)
}

// tileConstants returns those of kernels by tiles.
func tileConstants(r *run) exponentConstants {
	q := r.q
	c := q.exponentConstants()
	if !q.Format.Element.Integer && (q.Rule == RatioCeil || q.Rule == Ceil) {
		c.limit = math.MaxUint32 // nothing saturates
	}
	return c
}
