//go:build !purego

package quant

import (
	"math"

	"github.com/microscale-go/microscale/internal/cpu"
)

var bothKernels = []bothKernel{
	{cpu.AVX512, false, exponentBlocks(8, false), beginBoth(both8, both8Stream), beginColumns(columnTiles8, columnTiles8Stream), false},
	{cpu.AVX512, false, exponentBlocks(4, false), beginBoth(both4, nil), beginColumns(columnTiles4, nil), true},
	{cpu.AVX512, true, exponentBlocks(8, false), beginBoth(both8BF16, both8BF16Stream), beginColumns(columnTiles8BF16, columnTiles8BF16Stream), false},
	{cpu.AVX512, true, exponentBlocks(4, false), beginBoth(both4BF16, nil), beginColumns(columnTiles4BF16, nil), true},
}

// A bothFunc is a generated kernel.
type bothFunc func(rowCodes, rowScales, columnCodes, columnScales, src *byte, tiles, rowStride, rowScaleStride, columnStride, columnScaleStride, srcStride, next int, c *exponentConstants) uint64

// beginBoth takes a kernel, and the one that writes codes past the caches where
// there is one.
func beginBoth(kernel, stream bothFunc) func(*run) bothCall {
	return func(r *run) bothCall {
		c := r.q.tileConstants()
		return func(rows, columns tilePlace, src []byte, srcStride, n, next int) uint32 {
			f := kernel
			if stream != nil && rows.streamsFrom(r) && columns.streamsFrom(r) {
				f = stream
			}
			rowCodes, rowScales := rows.pointers()
			columnCodes, columnScales := columns.pointers()
			return uint32(f(rowCodes, rowScales, columnCodes, columnScales, &src[0], n, rows.codeStride, rows.scaleStride, columns.codeStride, columns.scaleStride, srcStride, next, &c))
		}
	}
}

// A columnsFunc is a generated kernel for the columnwise copy alone.
type columnsFunc func(columnCodes, columnScales, src *byte, tiles, columnStride, columnScaleStride, srcStride, next int, c *exponentConstants) uint64

// beginColumns is beginBoth of those.
func beginColumns(kernel, stream columnsFunc) func(*run) bothCall {
	return func(r *run) bothCall {
		c := r.q.tileConstants()
		return func(_, columns tilePlace, src []byte, srcStride, n, next int) uint32 {
			f := kernel
			if stream != nil && columns.streamsFrom(r) {
				f = stream
			}
			codes, scales := columns.pointers()
			return uint32(f(codes, scales, &src[0], n, columns.codeStride, columns.scaleStride, srcStride, next, &c))
		}
	}
}

// tileConstants returns those of kernels by tiles.
func (q *Quantizer) tileConstants() exponentConstants {
	c := q.exponentConstants()
	if q.Rule == RatioCeil || q.Rule == Ceil {
		c.limit = math.MaxUint32 // nothing saturates
	}
	return c
}
