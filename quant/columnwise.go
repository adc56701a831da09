package quant

import (
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/tensor"
)

// tileLines is how many columns are quantized by a column kernel from top to
// bottom: enough to read a good part of each row, and few enough for the cache
// to hold the ends of their lines.
const tileLines = 512

// tiles is bands where the columns of a matrix are the lines, by a column kernel.
func (r *run) tiles(from, to, band int) (amax uint32) {
	kernel := r.columnCall()
	last := from + (to-from)/tileColumns*tileColumns
	for l := from; l < last; l += tileLines {
		amax = max(amax, r.columnBlocks(kernel, l, min(l+tileLines, last)))
	}
	if r.with.Scales != nil {
		for l := from; l < last; l++ {
			r.with.Scales(l, r.t.lineScales(l))
		}
	}
	if last < to {
		amax = max(amax, r.strips(last, to, band))
	}
	return amax
}

// columnBlocks quantizes lines [from, to), a multiple of tileColumns.
func (r *run) columnBlocks(kernel columnCall, from, to int) (amax uint32) {
	extent, perLine := r.t.extent(), r.t.scaleCols()
	for j := range perLine {
		rows := r.x.dense.View(j*extent, min((j+1)*extent, r.x.dense.Rows), from, to)
		padded := rows
		if rows.Rows < extent {
			padded = tensor.New(extent, rows.Cols)
			for i := range rows.Rows {
				copy(padded.Row(i), rows.Row(i))
			}
		}
		codes := r.t.Codes[from*r.t.LineBytes()+j*extent:]
		scales := r.t.Scales[from*perLine+j:]
		a := kernel(codes, scales, padded.Data, rows.Cols/tileColumns, r.t.LineBytes(), perLine, 4*padded.Stride)
		if a == flagged {
			a = r.redoColumns(from, j, rows)
		}
		amax = max(amax, a)
	}
	return amax
}

// redoColumns is the plain form of block j of the lines from first on, which are
// the columns of rows.
func (r *run) redoColumns(first, j int, rows tensor.Dense) (amax uint32) {
	extent := r.t.extent()
	block, scaled := make([]float32, rows.Rows), make([]float32, rows.Rows)
	for c := range rows.Cols {
		for i := range block {
			block[i] = rows.At(i, c)
		}
		a, hasNaN := amaxBits(block)
		codes := r.t.line(first + c)[j*extent : (j+1)*extent]
		r.encodePlain(codes[:len(block)], block, r.scaleBlock((first+c)*r.t.scaleCols()+j, a, hasNaN), scaled)
		clear(codes[len(block):])
		amax = max(amax, a)
	}
	return amax
}

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
