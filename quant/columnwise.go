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
	w := r.newColumnRun()
	last := from + (to-from)/tileColumns*tileColumns
	for l := from; l < last; l += tileLines {
		for j := 0; j < r.t.scaleCols(); j += spreadBlocks {
			amax = max(amax, w.blocks(l, min(l+tileLines, last), j, min(j+spreadBlocks, r.t.scaleCols())))
		}
	}
	r.endStream()
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

// A columnRun is a column kernel at work on the lines of one goroutine.
type columnRun struct {
	*run
	kernel columnCall
	spread spreadFunc
	codes  []byte // of spreadBlocks blocks of some lines
}

// spreadBlocks are the most blocks of a line whose codes are collected before they
// are written where they belong: few at a time would go to as many pages.
const (
	spreadBlocks = 2
	spreadUnit   = 64 // bytes
)

func (r *run) newColumnRun() *columnRun {
	k := r.columnKernel()
	return &columnRun{run: r, kernel: k.begin(r), spread: k.spread}
}

// blocks quantizes blocks [first, last), at most spreadBlocks, of lines [from, to),
// a multiple of tileColumns.
func (w *columnRun) blocks(from, to, first, last int) (amax uint32) {
	extent, lineBytes := w.t.extent(), w.t.LineBytes()
	codes := w.t.Codes[from*lineBytes+first*extent:]
	bytes := (last - first) * extent
	if bytes%spreadUnit != 0 || lineBytes%spreadUnit != 0 || !w.streamsTo(codes) {
		for j := first; j < last; j++ {
			amax = max(amax, w.block(from, to, j, w.t.Codes[from*lineBytes+j*extent:], lineBytes))
		}
		return amax
	}
	grow(&w.codes, (to-from)*bytes)
	for j := first; j < last; j++ {
		amax = max(amax, w.block(from, to, j, w.codes[(j-first)*extent:], bytes))
	}
	w.spread(codes, w.codes, bytes/spreadUnit, to-from, lineBytes)
	return amax
}

// block quantizes block j of lines [from, to) to codes that are stride bytes apart.
func (w *columnRun) block(from, to, j int, codes []byte, stride int) (amax uint32) {
	extent, perLine := w.t.extent(), w.t.scaleCols()
	rows := w.x.dense.View(j*extent, min((j+1)*extent, w.x.dense.Rows), from, to)
	padded := rows
	if rows.Rows < extent {
		padded = tensor.New(extent, rows.Cols)
		for i := range rows.Rows {
			copy(padded.Row(i), rows.Row(i))
		}
	}
	a := w.kernel(codes, w.t.Scales[from*perLine+j:], padded.Data, rows.Cols/tileColumns, stride, perLine, 4*padded.Stride)
	if a == flagged {
		return w.redoColumns(from, j, rows, codes, stride)
	}
	return a
}

// redoColumns is the plain form of block j of the lines from first on, which are
// the columns of rows, to codes that are stride bytes apart.
func (r *run) redoColumns(first, j int, rows tensor.Dense, dst []byte, stride int) (amax uint32) {
	extent := r.t.extent()
	block, scaled := make([]float32, rows.Rows), make([]float32, rows.Rows)
	for c := range rows.Cols {
		for i := range block {
			block[i] = rows.At(i, c)
		}
		a, hasNaN := amaxBits(block)
		codes := dst[c*stride:][:extent]
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
	n, width := min(r.stripLines(band), to-from), r.x.cols()
	room := make([]float32, n*width)
	strip := *r
	for c0 := from; c0 < to; c0 += n {
		c1 := min(c0+n, to)
		rows := tensor.Of(c1-c0, width, room[:(c1-c0)*width])
		r.x.turn(rows, c0)
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
