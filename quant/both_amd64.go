//go:build !purego

package quant

import (
	"math"

	"github.com/microscale-go/microscale/internal/cpu"
)

var bothKernels = []bothKernel{
	{cpu.AVX512, false, exponentBlocks(8, false), beginBoth(both8, both8Stream)},
	{cpu.AVX512, false, exponentBlocks(4, false), beginBoth(both4, nil)},
	{cpu.AVX512, true, exponentBlocks(8, false), beginBoth(both8BF16, both8BF16Stream)},
	{cpu.AVX512, true, exponentBlocks(4, false), beginBoth(both4BF16, nil)},
}

// A bothFunc is a generated kernel.
type bothFunc func(rowCodes, rowScales, columnCodes, columnScales, src *byte, tiles, rowStride, rowScaleStride, columnStride, columnScaleStride, srcStride, next int, c *exponentConstants) uint64

// beginBoth takes a kernel, and the one that writes codes past the caches where
// there is one.
func beginBoth(kernel, stream bothFunc) func(*run) bothCall {
	return func(r *run) bothCall {
		c := r.q.exponentConstants()
		if rule := r.q.Rule; rule == RatioCeil || rule == Ceil {
			c.limit = math.MaxUint32 // nothing saturates
		}
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
