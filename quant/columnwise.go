package quant

import (
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/tensor"
)

// stripElements is about how many elements are transposed at a time, to be
// quantized while they are in the second-level cache.
const stripElements = 1 << 16

const transposeSize = 16 // rows and columns of a transposeKernel

// stripLines returns how many lines of a columnwise tensor make a strip: whole
// bands, and columns that fill cache lines.
func (r *run) stripLines(band int) int {
	lines := max(stripElements/max(1, r.x.cols()), transposeSize)
	return ceilDiv(lines, max(band, transposeSize)) * max(band, transposeSize)
}

// strips is bands where the columns of a matrix are the lines: [from, to) are
// copied to rows in strips, and quantized as those.
func (r *run) strips(from, to, band int) (amax uint32) {
	columns := r.x.dense
	n := min(r.stripLines(band), to-from)
	room := make([]float32, n*columns.Rows)
	strip := *r
	for c0 := from; c0 < to; c0 += n {
		c1 := min(c0+n, to)
		rows := tensor.Of(c1-c0, columns.Rows, room[:(c1-c0)*columns.Rows])
		transpose(rows, columns.View(0, columns.Rows, c0, c1))
		strip.x = source{dense: rows, first: c0}
		amax = max(amax, strip.bands(c0, c1, band))
	}
	return amax
}

// transpose sets dst to the transpose of src.
func transpose(dst, src tensor.Dense) {
	rows, cols := 0, 0 // what the kernel has done
	for _, k := range transposeKernels {
		if k.tier > cpu.Best() || src.Rows < transposeSize || src.Cols < transposeSize {
			continue
		}
		rows, cols = src.Rows/transposeSize*transposeSize, src.Cols/transposeSize*transposeSize
		for j := 0; j < cols; j += transposeSize {
			k.transpose(dst.Data[j*dst.Stride:], src.Data[j:], dst.Stride, src.Stride, rows/transposeSize)
		}
		break
	}
	for i := range src.Rows {
		j := cols
		if i >= rows {
			j = 0
		}
		for row := src.Row(i); j < len(row); j++ {
			dst.Data[j*dst.Stride+i] = row[j]
		}
	}
}
