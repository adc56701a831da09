package quant

import "github.com/microscale-go/microscale/internal/memory"

// The shortcut of the pipeline: a fused kernel does amax, scale and encode of groups of
// blocks in one read. A block that it does not support (one with NaN or Inf, or with a scale
// at an end of the range) fails its call, which is then halved down to one group: that is
// quantized by the reference implementation.

const (
	fusedAhead = 10 << 10 // bytes of the source that a fused kernel prefetches ahead
	rowsAhead  = 8 << 10  // the same where it takes parts of rows, about
	codesAhead = 1024     // the same of codes
	edgeBytes  = 8 << 10  // of the source, about, in partial groups that are quantized together
	flagged    = 1<<32 - 1
)

// fusedRows is rows by a fused kernel.
func (w *worker) fusedRows(o *output, call *fusedCall, x source, row, pos int) {
	rows, cols := x.rows, x.cols
	extent := o.q.Format.Block.Cols
	group := call.group * extent
	if x.isContiguous() && cols == o.t.StoredCols() && cols%extent == 0 { // one row of blocks after the other
		x, cols, rows = x.flat(), rows*cols, 1
	}
	whole := cols / group * group
	if whole > 0 {
		w.fusedGroups(o, call, x.view(0, rows, 0, whole), o.scaleAt(row, pos), whole/group, nil)
	}
	if whole < cols {
		w.fusedEdge(o, call, x.view(0, rows, whole, cols), o.scaleAt(row, pos)+whole/extent)
	}
}

// fusedColumns is rows of a tile of whole groups by a fused kernel, which also finds the amaxes of
// blocks of extent rows of its columns.
func (w *worker) fusedColumns(o *output, call *fusedCall, x source, row, pos, extent int) {
	amaxes := grow(&w.amaxes, x.rows/extent*x.cols)
	clear(amaxes)
	groups := x.cols / (call.group * o.q.Format.Block.Cols)
	for r := 0; r < x.rows; r += extent {
		part := amaxes[r/extent*x.cols:][:x.cols]
		maxima := source{wordBytes(part), 1, x.cols, x.cols * x.size, x.size}
		if x.isBF16() {
			maxima.data = wordBytes(grow(&w.columnMaxima, x.cols/2))
			clear(maxima.data)
		}
		w.fusedGroups(o, call, x.view(r, r+extent, 0, x.cols), o.scaleAt(row+r, pos), groups, maxima.data)
		if x.isBF16() {
			w.raiseColumns(part, maxima)
		}
	}
}

// findsColumns reports whether fusedColumns can find the amaxes that the columnwise copy c of a
// tile needs.
func (o *output) findsColumns(c *output, x source) bool {
	call, block := o.fused[index(x.isBF16())], c.q.Format.Block
	return call != nil && call.columns && !o.q.Hadamard && c.columns != nil && !c.knowsFactors() && block.Rows == 1 && block.Cols > 0 &&
		x.cols%(call.group*o.q.Format.Block.Cols) == 0 && x.cols%tileSide == 0 && x.rows%leastCommon(tileSide, block.Cols) == 0
}

// fusedGroups quantizes rows of whole groups, which begin with a block of the tensor. If maxima is
// not nil, it holds the running maximum of each column of x.
func (w *worker) fusedGroups(o *output, call *fusedCall, x source, block, groups int, maxima []byte) {
	rows, cols := x.rows, x.cols
	perRow := o.t.scaleCols()
	n := cols / o.q.Format.Block.Cols
	last := block + (rows-1)*perRow + n
	codes := o.blockCodes(block, last)
	t := rowGroups{
		codes: codes, scales: o.scaleMemory(block, last), src: x.bytes(0, rows), groups: groups, rows: rows,
		codeGap: (perRow - n) * o.blockBytes(), scaleGap: (perRow - n) * o.scaleBytes(), srcGap: x.stride - cols*x.size,
		ahead: fusedAhead, codeAhead: codesAhead, stream: o.streams(codes, rows), maxima: maxima,
	}
	if bytes := cols * x.size; rows > 1 {
		t.ahead = ceilDiv(rowsAhead, bytes) * x.stride
		t.codeAhead = o.t.RowBytes()
	}
	amax := call.quantize(t)
	switch { // a call that fails has raised all maxima
	case amax != flagged:
		o.raiseAmax(amax)
	case rows > 1:
		half := rows / 2
		w.fusedGroups(o, call, x.view(0, half, 0, cols), block, groups, nil)
		w.fusedGroups(o, call, x.view(half, rows, 0, cols), block+half*perRow, groups, nil)
	case groups > 1:
		half := groups / 2 * (cols / groups)
		w.fusedGroups(o, call, x.view(0, 1, 0, half), block, groups/2, nil)
		w.fusedGroups(o, call, x.view(0, 1, half, cols), block+half/o.q.Format.Block.Cols, groups-groups/2, nil)
	default:
		w.referenceBlocks(o, x, 0, block)
	}
}

// fusedEdge quantizes row tails that fill no group. They are contiguous in scratch, padded
// with zeros to whole blocks, and so are their codes until they are copied.
func (w *worker) fusedEdge(o *output, call *fusedCall, x source, block int) {
	rows, cols := x.rows, x.cols
	extent, size, perRow := o.q.Format.Block.Cols, x.size, o.t.scaleCols()
	width := ceilDiv(cols, extent)
	together := max(1, edgeBytes/(width*extent*size))
	for r := 0; r < rows; r += together {
		n := min(together, rows-r)
		groups := ceilDiv(n*width, call.group)
		src := grow(&w.source, groups*call.group*extent*size)
		clear(src)
		for i := range n {
			copy(src[i*width*extent*size:], x.bytes(r+i, r+i+1))
		}
		codes, scales := grow(&w.codes, groups*call.group*o.blockBytes()), grow(&w.scales, groups*call.group*o.scaleBytes())
		amax := call.quantize(rowGroups{codes: codes, scales: scales, src: src, groups: groups, rows: 1, ahead: fusedAhead})
		if amax == flagged {
			for i := range n {
				w.referenceBlocks(o, x, r+i, block+(r+i)*perRow)
			}
			continue
		}
		o.raiseAmax(amax)
		for i := range n {
			first := block + (r+i)*perRow
			copy(o.blockCodes(first, first+width), codes[i*width*o.blockBytes():])
			copy(o.scaleMemory(first, first+width), scales[i*width*o.scaleBytes():])
		}
	}
}

// referenceBlocks quantizes row i of x, which begins with a block of the tensor, block by
// block.
func (w *worker) referenceBlocks(o *output, x source, i, block int) {
	cols := x.cols
	extent := o.q.Format.Block.Cols
	for c := 0; c < cols; c += extent {
		values := x.view(i, i+1, c, min(c+extent, cols))
		amax, hasNaN := values.amaxBits(0, 1)
		o.raiseAmax(amax)
		codes := grow(&w.plain, extent)
		clear(codes)
		n := values.cols
		w.encodeReference(o, codes[:n], values.row(0, 0, n, &w.values), o.scaleBlock(block, amax, hasNaN), nil)
		o.q.Format.Element.Join(o.blockCodes(block, block+1), codes)
		block++
	}
}

// blockBytes returns the bytes of the codes of a block.
func (o *output) blockBytes() int {
	return o.q.Format.Block.Cols * o.q.Format.Element.StoredBits() / 8
}

// scaleBytes returns the bytes of a scale.
func (o *output) scaleBytes() int { return o.q.Format.Scale.StoredBits() / 8 }

// blockCodes returns the codes of blocks [from, to), in the order of the tensor.
func (o *output) blockCodes(from, to int) []byte {
	return o.t.Codes[from*o.blockBytes() : to*o.blockBytes()]
}

// scaleMemory returns the memory of scales [from, to).
func (o *output) scaleMemory(from, to int) []byte {
	if o.t.Scales32 != nil {
		return memory.Bytes(o.t.Scales32[from:to])
	}
	return o.t.Scales[from:to]
}

// streams reports whether codes are written by non-temporal stores, which need whole cache
// lines.
func (o *output) streams(codes []byte, rows int) bool {
	return o.stream && isAligned(codes) && (rows == 1 || o.t.RowBytes()%cacheLine == 0)
}
