package quant

import "encoding/binary"

// columns quantizes a tile of a columnwise copy, whose stored rows begin with row and
// whose positions with pos, without transposing its source: amaxes of columns, codes by the
// factors of columns, which a kernel transposes.
func (w *worker) columns(o *output, x source, row, pos int) {
	k := o.columns
	rows, cols := x.rows, x.cols
	block := o.q.Format.Block
	if side := leastCommon(tileSide, block.Cols); rows%side != 0 || cols%tileSide != 0 {
		x = w.pad(x, ceilDiv(rows, side)*side, ceilDiv(cols, tileSide)*tileSide)
	}
	down, width := x.rows, x.cols
	extent := block.Cols // rows of the tile that share a scale
	if extent == 0 {
		extent = down
	}
	parts := down / extent
	w.columnAmaxes(o, x, extent)
	known := o.known != nil || o.q.Format.PerTensor()
	if known {
		clear(grow(&w.factors, width)) // those of padded columns stay 0
		w.use(o, cols, row)
	} else {
		w.scale(o, parts*width, func(i int) (uint32, bool) {
			c := i % width
			if block.Rows > 1 {
				c -= c % block.Rows
			}
			return x.view(i/width*extent, (i/width+1)*extent, c, min(c+max(1, block.Rows), width)).amaxBits(0, extent)
		})
	}

	bits := o.q.Format.Element.StoredBits()
	stride := o.t.RowBytes()
	var codes []byte
	stream := o.streamsColumns(row, pos, rows)
	inPlace := down == rows && width == cols && (!stream || bits == 8)
	if inPlace {
		codes = o.codesAt(row, pos)
	} else {
		stride = down * bits / 8
		codes = grow(&w.codes, width*stride)
	}
	for r := 0; r < down; r += tileSide {
		part := 0
		if extent < down {
			part = r / extent
		}
		k.encode(columnPart{
			codes: codes[r*bits/8:], src: x.bytes(r, r+tileSide), factors: w.factors[part*width:], n: width / tileSide,
			blockRows: max(1, min(extent, tileSide)/16), codeStride: stride, srcStride: x.stride, factorStride: 4 * width, ahead: w.ahead, bits: bits, stream: inPlace && stream,
		}, &o.encode)
	}
	for _, i := range w.exceptional {
		if r, c := i/width*extent, i%width; r < rows && c < cols {
			w.exceptionalColumn(o, x.view(r, min(r+extent, rows), c, c+1), codes[c*stride+r*bits/8:], w.blocks[i], extent)
		}
	}
	if !inPlace {
		o.copyColumns(codes, stride, cols, rows, row, pos)
	}
	if !known {
		w.storeColumnScales(o, width, cols, min(parts, ceilDiv(rows, extent)), row, pos)
	}
}

// columnAmaxes finds the amaxes of the blocks of extent rows in a tile.
func (w *worker) columnAmaxes(o *output, x source, extent int) {
	down, width := x.rows, x.cols
	amaxes := grow(&w.amaxes, down/extent*width)
	clear(amaxes)
	if o.finite { // amaxes tell only which blocks have NaN or Inf
		return
	}
	for i := range down / extent {
		part := amaxes[i*width : (i+1)*width]
		w.raiseColumns(part, x.view(i*extent, (i+1)*extent, 0, width))
		if rows := o.q.Format.Block.Rows; rows > 1 {
			shareMaxima(part, rows)
		}
	}
}

// exceptionalColumn encodes a block of a column, of extent elements with the zeros that
// fill it up, by the reference implementation.
func (w *worker) exceptionalColumn(o *output, x source, codes []byte, f blockFactor, extent int) {
	n := x.rows
	column := grow(&w.loaded, n)
	for i := range column {
		column[i] = x.row(i, 0, 1, &w.values)[0]
	}
	extent = min(extent, o.q.Format.PaddedCols(n))
	plain := grow(&w.plain, ceilDiv(extent, 8)*8)
	clear(plain)
	w.encodeReference(o, plain[:n], column, f, nil)
	o.join(codes, plain, extent)
}

// streamsColumns reports whether the codes of a tile leave by non-temporal stores.
func (o *output) streamsColumns(row, pos, n int) bool {
	return o.streams(o.codesAt(row, pos), 2) && n*o.q.Format.Element.StoredBits()/8%cacheLine == 0
}

// copyColumns copies codes of a tile from scratch to their place, with the zeros that fill
// up the last block.
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
	if parts%4 == 0 && step == 1 { // of tiles of four blocks, or eight
		for i := 0; i < parts; i += 4 {
			transposeFour(o.t.Scales[at+i:], w.scales[i*width:], width, cols, perRow)
		}
		return
	}
	transposeScales(o.t.Scales[at:], w.scales, width, cols, parts, step, perRow)
}

// transposeFour is transposeScales of four rows.
func transposeFour(dst, src []byte, width, cols, stride int) {
	s0, s1, s2, s3 := src[:cols], src[width:][:cols], src[2*width:][:cols], src[3*width:][:cols]
	for c := range s0 {
		scales := uint32(s0[c]) | uint32(s1[c])<<8 | uint32(s2[c])<<16 | uint32(s3[c])<<24
		binary.LittleEndian.PutUint32(dst[c*stride:], scales)
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

// pad copies x to a matrix of rows × cols, with zeros elsewhere.
func (w *worker) pad(x source, rows, cols int) source {
	size := x.size
	padded := grow(&w.source, rows*cols*size)
	clear(padded)
	n := x.rows
	for i := range n {
		copy(padded[i*cols*size:], x.bytes(i, i+1))
	}
	return source{padded, rows, cols, cols * size, size}
}

// raiseColumns raises maxima to the bits of the columns of x.
func (w *worker) raiseColumns(maxima []uint32, x source) {
	rows, cols := x.rows, x.cols
	done := 0
	if k := first(columnKernels, func(k *columnKernel) bool { return has(k.tier) && k.raw == x.isBF16() }); k != nil && cols >= tileSide {
		done = cols / tileSide * tileSide
		k.maxima(maxima[:done], x.bytes(0, rows), rows, x.stride, columnsAhead*x.stride)
	}
	for i := 0; i < rows && done < cols; i++ {
		raiseMagnitudes(maxima[done:], x.row(i, done, cols, &w.values))
	}
}

// shareMaxima makes each of n maxima side by side the largest of them.
func shareMaxima(maxima []uint32, n int) {
	for ; len(maxima) > 0; maxima = maxima[min(n, len(maxima)):] {
		share := maxima[:min(n, len(maxima))]
		most := maxOf(share)
		for i := range share {
			share[i] = most
		}
	}
}

// columnsAhead is the rows of the source that are prefetched ahead as columns are read.
const columnsAhead = 8
