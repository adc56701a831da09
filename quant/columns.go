package quant

import "github.com/microscale-go/microscale/format"

// columnsAhead is the rows of the source that are prefetched ahead as columns are read.
const columnsAhead = 8

// columns quantizes a tile of a columnwise copy, whose stored rows begin with row and
// positions with pos, without transposing its source: amaxes of columns, then codes by the
// factors of columns, which a kernel transposes. The tile is padded to whole blocks and
// kernel tiles. If found is set, w.amaxes already has the amaxes.
func (w *worker) columns(o *output, x source, row, pos int, found bool) {
	rows, cols, bits := x.rows, x.cols, o.q.Format.Element.StoredBits()
	x = w.padTile(o, x)
	extent := o.q.Format.Block.Cols // rows that share a scale
	if extent == 0 {
		extent = x.rows
	}
	if !found {
		w.columnAmaxes(o, x, extent)
	}
	powers := w.columnFactors(o, x, extent, row, cols)

	codes, stride := o.codesAt(row, pos), o.t.RowBytes()
	stream := o.streamsColumns(row, pos, rows)
	inPlace := x.rows == rows && x.cols == cols && (!stream || bits == 8)
	if !inPlace {
		stride = x.rows * bits / 8
		codes = grow(&w.codes, x.cols*stride)
	}
	w.encodeColumns(o, x, extent, columnPart{codes: codes, codeStride: stride, bits: bits, stream: inPlace && stream, powers: powers})
	for _, i := range w.exceptional {
		if r, c := i/x.cols*extent, i%x.cols; r < rows && c < cols {
			w.exceptionalColumn(o, x.view(r, min(r+extent, rows), c, c+1), codes[c*stride+r*bits/8:], w.blocks[i], extent)
		}
	}
	if !inPlace {
		o.copyColumns(codes, stride, cols, rows, row, pos)
	}
	if !o.knowsFactors() {
		w.storeColumnScales(o, x.cols, cols, ceilDiv(rows, extent), row, pos)
	}
}

// padTile returns x, or a copy padded with zeros to whole blocks and kernel tiles.
func (w *worker) padTile(o *output, x source) source {
	side := leastCommon(tileSide, o.q.Format.Block.Cols)
	rows, cols := ceilDiv(x.rows, side)*side, ceilDiv(x.cols, tileSide)*tileSide
	if rows == x.rows && cols == x.cols {
		return x
	}
	padded := grow(&w.source, rows*cols*x.size)
	clear(padded)
	for i := range x.rows {
		copy(padded[i*cols*x.size:], x.bytes(i, i+1))
	}
	return source{padded, rows, cols, cols * x.size, x.size}
}

// columnAmaxes finds the amaxes of the blocks of extent rows in a tile.
func (w *worker) columnAmaxes(o *output, x source, extent int) {
	amaxes := grow(&w.amaxes, x.rows/extent*x.cols)
	clear(amaxes)
	if o.finite { // amaxes tell only which blocks have NaN or Inf
		return
	}
	for i := range x.rows / extent {
		part := amaxes[i*x.cols : (i+1)*x.cols]
		w.raiseColumns(part, x.view(i*extent, (i+1)*extent, 0, x.cols))
		if rows := o.q.Format.Block.Rows; rows > 1 {
			shareMaxima(part, rows)
		}
	}
}

// columnFactors sets w.factors, and the scales unless they are known. The first of cols
// columns is stored in row; the others are padding. powers is that of columnPart.
func (w *worker) columnFactors(o *output, x source, extent, row, cols int) (powers bool) {
	if o.knowsFactors() {
		clear(grow(&w.factors, x.cols)) // those of padding stay 0
		w.useFactors(o, cols, row)
		return false
	}
	width := max(1, o.q.Format.Block.Rows)
	byKernel := w.scale(o, x.rows/extent*x.cols, func(i int) (uint32, bool) {
		r, c := i/x.cols*extent, i%x.cols/width*width
		return x.view(r, r+extent, c, min(c+width, x.cols)).amaxBits(0, extent)
	})
	return byKernel && o.q.Format.Scale == format.E8M0 && !o.q.Format.Element.Integer
}

// encodeColumns encodes a tile by w.factors, to the destination t.
func (w *worker) encodeColumns(o *output, x source, extent int, t columnPart) {
	codes := t.codes
	t.n, t.blockRows = x.cols/tileSide, max(1, min(extent, tileSide)/16)
	t.srcStride, t.factorStride = x.stride, 4*x.cols
	if o.stream { // prefetches from the third-level cache delay the reads of this tile
		t.ahead = w.ahead
	}
	for r := 0; r < x.rows; r += tileSide {
		t.codes, t.src, t.factors = codes[r*t.bits/8:], x.bytes(r, r+tileSide), w.factors
		if extent < x.rows {
			t.factors = w.factors[r/extent*x.cols:]
		}
		o.columns(t, &o.encode)
	}
}

// exceptionalColumn encodes a block of a column, of extent elements with the zeros that
// fill it up, by the reference implementation.
func (w *worker) exceptionalColumn(o *output, x source, codes []byte, f factor, extent int) {
	column := grow(&w.loaded, x.rows)
	for i := range column {
		column[i] = x.row(i, 0, 1, &w.values)[0]
	}
	extent = min(extent, o.q.Format.PaddedCols(x.rows))
	plain := grow(&w.plain, ceilDiv(extent, 8)*8)
	clear(plain)
	w.encodeReference(o, plain[:x.rows], column, f, nil)
	o.join(codes, plain, extent)
}

// streamsColumns reports whether the codes of a tile are written by non-temporal stores.
func (o *output) streamsColumns(row, pos, n int) bool {
	return o.streams(o.codesAt(row, pos), 2) && n*o.q.Format.Element.StoredBits()/8%cacheLine == 0
}

// copyColumns copies codes of a tile from scratch to the tensor, with the zeros that pad the
// last block.
func (o *output) copyColumns(codes []byte, stride, cols, rows, row, pos int) {
	bits := o.q.Format.Element.StoredBits()
	n := o.q.Format.PaddedCols(rows) * bits / 8
	dst := o.codesAt(row, pos)
	if o.streamsColumns(row, pos, rows) && n == stride {
		spread(dst, codes, n, cols, o.t.RowBytes())
		return
	}
	for c := range cols {
		copy(dst[c*o.t.RowBytes():][:n], codes[c*stride:])
	}
}

// storeColumnScales copies the scales of a tile, which are by blocks of rows, to their
// place.
func (w *worker) storeColumnScales(o *output, width, cols, parts, row, pos int) {
	perRow, at := o.t.scaleCols(), o.scaleAt(row, pos)
	step := max(1, o.q.Format.Block.Rows)
	if o.t.Scales32 != nil {
		transposeScales(o.t.Scales32[at:], floats(w.scales), width, cols, parts, step, perRow)
		return
	}
	done := 0 // columns
	if transpose, ok := find(transposeFourKernels, variant{}); ok && parts%4 == 0 && step == 1 {
		n := cols / fourUnit // parts are four or eight, unless the tile is at an edge
		done = n * fourUnit
		for i := 0; i < parts && n > 0; i += 4 {
			transpose(o.t.Scales[at+i:], w.scales[i*width:], n, perRow, width)
		}
	}
	if done < cols {
		transposeScales(o.t.Scales[at+done*perRow:], w.scales[done:], width, cols-done, parts, step, perRow)
	}
}

// transposeScales sets dst, whose rows are stride apart, to the transpose of parts rows of
// width scales, of which every step-th of the first cols is taken.
func transposeScales[T byte | float32](dst, src []T, width, cols, parts, step, stride int) {
	for i := range parts {
		at := i
		for c := 0; c < cols; c += step {
			dst[at] = src[i*width+c]
			at += stride
		}
	}
}

// raiseColumns updates the running maxima of the columns of x.
func (w *worker) raiseColumns(maxima []uint32, x source) {
	rows, cols := x.rows, x.cols
	done := 0
	if raise, ok := find(maximaKernels, variant{bf16: x.isBF16()}); ok && cols >= tileSide {
		done = cols / tileSide * tileSide
		raise(maxima[:done], x.bytes(0, rows), rows, x.stride, columnsAhead*x.stride)
	}
	for i := 0; i < rows && done < cols; i++ {
		raiseMagnitudes(maxima[done:], x.row(i, done, cols, &w.values))
	}
}

// shareMaxima sets each of n adjacent maxima to the largest of them.
func shareMaxima(maxima []uint32, n int) {
	for ; len(maxima) > 0; maxima = maxima[min(n, len(maxima)):] {
		share := maxima[:min(n, len(maxima))]
		largest := maxOf(share)
		for i := range share {
			share[i] = largest
		}
	}
}
