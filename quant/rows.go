package quant

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// rows quantizes x: parts of stored rows, the first of which is row, from position pos on.
func (w *worker) rows(o *output, x source, row, pos int) {
	switch call := o.fused[index(x.isBF16())]; {
	case !o.q.Format.Scaled():
		w.cast(o, x, row, pos)
	case call != nil:
		w.fusedRows(o, call, x, row, pos)
	default:
		w.stagedRows(o, x, row, pos)
	}
}

// cast stores elements without a scale.
func (w *worker) cast(o *output, x source, row, pos int) {
	amax, _ := x.amaxBits(0, x.rows)
	o.raiseAmax(amax)
	w.castRows(o.codesAt(row, pos), x, o.q.Format.Element, o.t.RowBytes())
}

// castColumns stores the columns of x as rows, without a scale: it transposes codes, which are smaller
// than elements.
func (w *worker) castColumns(o *output, x source, row, pos int) {
	amax, _ := x.amaxBits(0, x.rows)
	o.raiseAmax(amax)
	size := o.q.Format.Element.StoredBits() / 8
	stride := x.cols * size
	codes := grow(&w.codes, x.rows*stride)
	w.castRows(codes, x, o.q.Format.Element, stride)
	o.storeTransposed(row, pos, codes, x.rows, x.cols, stride)
}

// castRows sets rows of codes, stride bytes apart, to the elements of x.
func (w *worker) castRows(codes []byte, x source, e *format.Scalar, stride int) {
	size := e.StoredBits() / 8
	if x.isContiguous() && stride == x.cols*size {
		x = x.flat() // a call for all rows
	}
	for i := range x.rows {
		if err := tensor.ToBytes(codes[i*stride:][:x.cols*size], x.row(i, 0, x.cols, &w.values), e); err != nil {
			panic(err) // Validate admits only formats that ToBytes takes
		}
	}
}

// A grid is the blocks of a tile, each of height rows and width columns, in rows of blocks.
type grid struct {
	rows, cols    int // of the tile
	height, width int // of a block
	down, blocks  int // rows of blocks; blocks of a row
}

// gridOf returns the blocks of x.
func (o *output) gridOf(x source) grid {
	g := grid{height: o.q.Format.Block.Rows, width: o.q.Format.Block.Cols}
	g.rows, g.cols = x.rows, x.cols
	if o.q.Format.PerTensor() {
		g.height = 1
	} else if g.height == 0 {
		g.height = g.rows
	}
	if g.width == 0 {
		g.width = g.cols
	}
	g.down, g.blocks = ceilDiv(g.rows, g.height), ceilDiv(g.cols, g.width)
	return g
}

// part returns block i of x.
func (g grid) part(x source, i int) source {
	r, c := i/g.blocks*g.height, i%g.blocks*g.width
	return x.view(r, min(r+g.height, g.rows), c, min(c+g.width, g.cols))
}

// stagedRows is rows stage by stage.
func (w *worker) stagedRows(o *output, x source, row, pos int) {
	g := o.gridOf(x)
	n := g.down * g.blocks
	amaxes := grow(&w.amaxes, ceilDiv(n, scaleUnit)*scaleUnit)
	clear(amaxes)
	switch {
	case o.finite: // amaxes tell only which blocks have NaN or Inf
	case g.height > 1:
		w.raiseBlockRows(amaxes, x, g)
	case x.isContiguous() && g.cols%g.width == 0:
		raiseAmaxes(amaxes[:n], x.bytes(0, g.rows), x.isBF16(), g.width)
	default:
		for i := range g.rows {
			raiseAmaxes(amaxes[i*g.blocks:][:g.blocks], x.bytes(i, i+1), x.isBF16(), g.width)
		}
	}
	if o.knowsFactors() {
		w.useFactors(o, n, row)
	} else {
		w.scale(o, n, func(i int) (uint32, bool) {
			block := g.part(x, i)
			rows := block.rows
			return block.amaxBits(0, rows)
		})
		if o.q.Search != NoSearch {
			w.searchScales(o, x, g, pos)
		}
		for b := range g.down {
			w.storeScales(o, o.scaleAt(row+b*g.height, pos), b*g.blocks, g.blocks)
		}
	}
	w.encode(o, x, g, row, pos)
}

// raiseBlockRows updates the running amaxes of blocks of several rows: for each row of blocks,
// first the maxima of columns, then those of blocks.
func (w *worker) raiseBlockRows(amaxes []uint32, x source, g grid) {
	maxima := grow(&w.columnMaxima, g.cols)
	for b := range g.down {
		clear(maxima)
		w.raiseColumns(maxima, x.view(b*g.height, min((b+1)*g.height, g.rows), 0, g.cols))
		for j := range g.blocks {
			amaxes[b*g.blocks+j] = maxOf(maxima[j*g.width : min((j+1)*g.width, g.cols)])
		}
	}
}

// encode encodes rows by the factors of their blocks.
func (w *worker) encode(o *output, x source, g grid, row, pos int) {
	done := 0 // elements of each row
	if len(w.exceptional) == g.down*g.blocks {
		done = g.cols
	} else if encode := o.rowKernel(x.isBF16()); encode != nil && (g.width%rowUnit == 0 || g.blocks == 1) {
		done = w.encodeUnits(o, encode, x, g, row, pos)
	}
	padded := o.t.paddedCols() > o.t.StoredCols() && pos+g.cols == o.t.StoredCols()
	for i := 0; i < g.rows && (done < g.cols || padded); i++ {
		if done < g.cols {
			factors := w.factors[i/g.height*g.blocks+done/g.width:]
			w.encodeRow(o, x.row(i, done, g.cols, &w.values), factors, g.width, row+i, pos+done)
		}
		if padded {
			clear(o.t.row(row + i)[((pos+g.cols)*o.q.Format.Element.StoredBits()+7)/8:])
		}
	}
	for _, j := range w.exceptional {
		block, r, c := g.part(x, j), row+j/g.blocks*g.height, pos+j%g.blocks*g.width
		rows, n := block.rows, block.cols
		for i := range rows {
			codes := grow(&w.plain, ceilDiv(n, 8)*8)
			clear(codes[n:])
			w.encodeReference(o, codes[:n], block.row(i, 0, n, &w.values), w.blocks[j], w.random.words(o, r+i, c, n))
			o.join(o.codesAt(r+i, c), codes, n)
		}
	}
}

// encodeUnits encodes as much of each row as a kernel takes, and returns the elements.
func (w *worker) encodeUnits(o *output, encode func(rowPart, *encodeConstants), x source, g grid, row, pos int) int {
	part := rowPart{units: g.width / rowUnit, blocks: g.cols / g.width, codeStride: o.t.RowBytes(), srcStride: x.stride, ahead: w.ahead}
	n := part.units * part.blocks * rowUnit
	if n == 0 {
		return 0
	}
	part.factorStride = g.blocks
	part.rows, part.stream = g.rows, o.streams(o.codesAt(row, pos), g.rows)
	if g.height == 1 {
		part.codes, part.src, part.factors = o.codesAt(row, pos), x.bytes(0, g.rows), w.factors
		encode(part, &o.encode)
		return n
	}
	part.factorStride = 0
	for b := range g.down {
		from, to := b*g.height, min((b+1)*g.height, g.rows)
		part.rows, part.codes, part.src, part.factors = to-from, o.codesAt(row+from, pos), x.bytes(from, to), w.factors[b*g.blocks:]
		encode(part, &o.encode)
	}
	return n
}

// join stores n codes. Those that fill up the last whole bytes are zeros in codes.
func (o *output) join(dst, codes []byte, n int) {
	element := o.q.Format.Element
	for n*element.StoredBits()%8 > 0 {
		n++
	}
	element.Join(dst[:n*element.StoredBits()/8], codes[:n])
}

// encodeRow encodes values of one stored row by factors, the first of which is that of the
// first value: by the first kernel that supports them, or the reference implementation.
func (w *worker) encodeRow(o *output, values, factors []float32, width, row, pos int) {
	n, bits, dst := len(values), o.q.Format.Element.StoredBits(), o.codesAt(row, pos)
	words := w.random.words(o, row, pos, n)
	if encode := o.joinKernel(); encode != nil && (width%factorExtent == 0 || width >= n) {
		encode(dst[:(n*bits+7)/8], values, words, w.spreadFactors(factors, n, width), &o.encode)
		return
	}
	codes := dst
	if bits < 8 {
		codes = grow(&w.codes, ceilDiv(n, 8)*8)
		clear(codes[n:])
	}
	if o.encodes != nil {
		o.encodes(codes[:n], values, factors[:ceilDiv(n, width)], width, &o.encode)
	} else {
		for j := 0; j*width < n; j++ {
			c0, c1 := j*width, min((j+1)*width, n)
			f := factor{value: factors[j], divide: o.divides}
			w.encodeReference(o, codes[c0:c1], values[c0:c1], f, words[min(c0, len(words)):])
		}
	}
	if bits < 8 {
		o.join(dst, codes, n)
	}
}

// spreadFactors returns a factor for each 16 of n elements, and for those that fill up a
// unit of the kernel.
func (w *worker) spreadFactors(factors []float32, n, width int) []float32 {
	spread := grow(&w.spread, ceilDiv(n, joinUnit)*joinUnit/factorExtent)
	for i := range spread {
		spread[i] = factors[min(i*factorExtent, n-1)/width]
	}
	return spread
}
