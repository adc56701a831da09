package quant

import (
	"reflect"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// A factorKernel encodes tiles to codes of 8 bits by factors that are known, for both
// copies or for the columnwise one alone, and finds what factors come from. The result
// of encoding is flagged where an element is Inf or NaN, and else zero.
type factorKernel struct {
	tier    cpu.Tier
	raw     bool                                        // the source is BF16, else float32
	both    func(factoredTiles, *bytesConstants) uint32 // by factors of rows and of columns
	square  func(factoredTiles, *bytesConstants) uint32 // both by the factors of columns
	alone   func(factoredTiles, *bytesConstants) uint32
	maxima  func(rows, columns []uint32, src []byte, srcStride int)
	factors func(factors, scales []float32, amaxes []uint32, c *bytesConstants)
}

// factoredTiles are tiles whose factors are known, those of rows the same for all tiles.
type factoredTiles struct {
	tiles
	rowFactors, columnFactors []float32
	stream                    bool // codes are written past the caches
}

// factorSide is the rows and columns that a factorKernel takes to find maxima, and the
// positions of a line that share a factor: its rows come in sixteens.
const (
	factorSide  = 128
	factorGroup = 16
)

// factorKernelOf returns the first kernel that takes tiles of both copies, or of the
// columnwise one where row is nil, or nil.
func factorKernelOf(row, col *run) *factorKernel {
	for _, r := range []*run{row, col} {
		if r != nil && (!r.q.factored() || r.q.Format.Element != col.q.Format.Element) {
			return nil
		}
	}
	for i, k := range factorKernels {
		if k.tier <= cpu.Best() && k.raw == col.x.isRaw {
			return &factorKernels[i]
		}
	}
	return nil
}

// sameCodes reports whether both copies have the same factors, and so the same codes: of
// square blocks, or of the tensor.
func sameCodes(row, col *run) bool {
	return row != nil && row.q.Format.Square() && row.whole == col.whole && reflect.DeepEqual(row.q, col.q)
}

// factored reports whether factors of the elements are found before: of lines, of the
// tensor, or of blocks of factorSide.
func (q *Quantizer) factored() bool {
	f := q.Format
	if f.Scale != format.F32 || f.Element.StoredBits() != 8 || !q.signMagnitude() || q.Search != NoSearch || q.Hadamard {
		return false
	}
	return f.Block.Cols == 0 && f.Block.Rows <= 1 || f.Block == Shape{factorSide, factorSide} || bytes128(q)
}

// bytes128 says that a kernel serves blocks of 128 elements of 8 bits under FP32
// scales, as Transformer Engine computes them.
func bytes128(q *Quantizer) bool {
	f := q.Format
	return f.Scale == format.F32 && f.Block == Shape{1, factorSide} && f.Element.StoredBits() == 8 &&
		q.Arithmetic == EncodeFirst && q.signMagnitude()
}

// factoredRoom is what the factors of a tile take.
type factoredRoom struct {
	lines  [2]lineFactors // by direction
	scales []float32
	ofRow  []float32 // of a row of blocks, one for each
	maxima []float32
	src    []byte // copied
}

// lineFactors are those of lines from one on, of parts of factorSide positions from one
// on: of all lines for the first part, and so on.
type lineFactors struct {
	line, lines, position, parts int
	maxima                       []uint32
	factors                      []float32
}

// of returns the factors of a part of the lines from one on.
func (f *lineFactors) of(part, line int) []float32 {
	return f.factors[part*f.lines+line-f.line:]
}

// factored makes rows [l0, l1) of columns [c0, c1), a multiple of factorSide, and reports
// whether it could: not where there is Inf or NaN, nor where elements are not multiplied
// by their factor.
func (w *tilingRun) factored(l0, l1, c0, c1 int) bool {
	if c0 == c1 {
		return true
	}
	lines := &w.room.factored.lines
	beside := (c1 - c0) / factorSide
	lines[Rowwise].line, lines[Rowwise].lines, lines[Rowwise].position, lines[Rowwise].parts = l0, l1-l0, c0, beside
	lines[Columnwise].line, lines[Columnwise].lines, lines[Columnwise].position, lines[Columnwise].parts = c0, c1-c0, l0, 1
	for d := range lines {
		n := ceilDiv(lines[d].lines*lines[d].parts, factorGroup) * factorGroup
		grow(&lines[d].maxima, n)
		grow(&lines[d].factors, n)
		clear(lines[d].maxima[:n])
	}
	if w.findsMaxima() {
		for j := range beside {
			w.raiseTile(lines[Rowwise].maxima[j*(l1-l0):][:l1-l0], lines[Columnwise].maxima[j*factorSide:], l0, c0+j*factorSide)
		}
	}
	for d, r := range []*run{w.row, w.col} {
		if r == nil {
			continue
		}
		amax, ok := w.findFactors(r, &lines[d])
		if !ok {
			return false
		}
		w.seen[d] = max(w.seen[d], amax)
	}
	for l := l0; l < l1; l += tileSide {
		if !w.encodeFactored(l, min(l+tileSide, l1), c0, c1) {
			return false
		}
	}
	if l1 == w.col.x.cols() { // what fills up the last blocks of columns
		for c := c0; c < c1; c++ {
			clear(w.col.t.line(c)[l1:])
		}
	}
	return true
}

// findsMaxima reports whether a copy has scales of blocks.
func (g *tiling) findsMaxima() bool {
	return g.col.q.Format.Block.Cols > 0 || g.row != nil && g.row.q.Format.Block.Cols > 0
}

// raiseTile raises maxima of rows from l on, and of factorSide columns from c on, to the
// bits of their elements.
func (g *tiling) raiseTile(rows, columns []uint32, l, c int) {
	size, whole := g.x.elementBytes(), len(rows)/factorGroup*factorGroup
	if whole > 0 {
		g.kernel.maxima(rows[:whole], columns[:factorSide], g.x.bytes(l, l+whole)[c*size:], g.x.strideBytes())
	}
	g.raiseRows(rows[whole:], columns[:factorSide], l+whole, c)
}

// raiseRows is raiseTile row by row, of as many columns as there are maxima.
func (g *tiling) raiseRows(rows, columns []uint32, l, c int) {
	if len(rows) == 0 || len(columns) == 0 {
		return
	}
	x := newRoomy(1, len(columns))
	defer x.giveBack()
	for i := range rows {
		g.x.copyValues(x.Data, g.x.bytes(l+i, l+i+1)[c*g.x.elementBytes():])
		raiseMaxima(asFloats(columns), x.Data)
		rows[i] = max(rows[i], maxBits(x.Data))
	}
}

// findFactors stores the scales of lines of a copy, where those of their blocks are, and
// returns the bits of the largest magnitude of these; false where an element is not
// multiplied by its factor, or is not finite.
func (w *tilingRun) findFactors(r *run, f *lineFactors) (amax uint32, ok bool) {
	n, block, perLine := f.lines*f.parts, r.q.Format.Block, r.t.scaleCols()
	switch {
	case block.Cols == 0:
		for i := range n {
			known, _ := r.lineFactor(f.line + i%f.lines)
			if !known.isFactor() {
				return 0, false
			}
			f.factors[i] = known.value
		}
		return 0, true
	case slices.Max(f.maxima[:n]) >= exponentMask:
		return 0, false
	}
	amax = slices.Max(f.maxima[:n])
	if block.Rows == 1 {
		room := &w.room.factored.scales
		grow(room, len(f.maxima))
		c := r.q.bytesConstants()
		w.kernel.factors(f.factors, *room, f.maxima[:ceilDiv(n, factorGroup)*factorGroup], &c)
		for part := range f.parts {
			scales, at := (*room)[part*f.lines:], f.line*perLine+f.position/factorSide+part
			for i := range f.lines {
				r.t.Scales32[at+i*perLine] = scales[i]
			}
		}
		return amax, true
	}
	for i := 0; i < n; {
		line := f.line + i%f.lines
		end := i + min(f.lines-i%f.lines, factorSide)
		b := r.scaleBlock(line/factorSide*perLine+f.position/factorSide+i/f.lines, slices.Max(f.maxima[i:end]), false)
		if !b.isFactor() {
			return 0, false
		}
		for ; i < end; i++ {
			f.factors[i] = b.value
		}
	}
	return amax, true
}

// encodeFactored encodes rows [l0, l1), at most those of a tile, of columns [c0, c1).
func (w *tilingRun) encodeFactored(l0, l1, c0, c1 int) bool {
	room, size, rows := &w.room.factored, w.x.elementBytes(), l1-l0
	start := room.lines[Rowwise].line
	end := start + room.lines[Rowwise].lines
	c, step, encode := w.col.q.bytesConstants(), c1-c0, w.kernel.alone
	t := factoredTiles{tiles: tiles{srcStride: w.x.strideBytes(), rows: rows}}
	switch {
	case rows < tileSide && w.row != nil:
		w.encodeRows(l0, l1, c0, c1)
	case w.square:
		encode = w.kernel.square
	case w.row != nil:
		encode = w.kernel.both
		if w.row.q.Format.Block.Cols > 0 {
			step = factorSide
		}
	}
	for at := c0; at < c1; at += step {
		t.next = tileSide * size // what is beside
		switch {
		case at+step < c1:
		case l1 < end: // what is below
			t.next = tileSide*w.x.strideBytes() - (c1-c0-tileSide)*size
		default: // the next tile from its first row on
			t.next -= (l0 - start) * w.x.strideBytes()
		}
		t.n, t.src = step/tileSide, w.x.bytes(l0, l1)[at*size:]
		if rows%factorGroup != 0 {
			t.src, t.srcStride = copyRows(&room.src, w.x, l0, l1, at, at+step, tileSide, step), step*size
		}
		t.byColumn, t.columnFactors = w.col.codesAt(at, l0), room.lines[Columnwise].of(0, at)
		t.stream = rows == tileSide && t.byColumn.streamsFrom(w.col)
		if w.row != nil && rows == tileSide {
			t.byRow, t.rowFactors = w.row.codesAt(l0, at), room.lines[Rowwise].of((at-c0)/factorSide, l0)
			t.stream = t.stream && t.byRow.streamsFrom(w.row)
		}
		if encode(t, &c) == flagged {
			return false
		}
	}
	return true
}

// encodeRows is the rowwise copy of encodeFactored.
func (w *tilingRun) encodeRows(l0, l1, c0, c1 int) {
	room, size := &w.room.factored, w.x.elementBytes()
	kernel, c, parts := w.row.rowsKernel(), w.row.q.bytesConstants(), (c1-c0)/factorSide
	grow(&room.ofRow, parts)
	grow(&room.maxima, parts*maximaLanes)
	for l := l0; l < l1; l++ {
		for j := range parts {
			room.ofRow[j] = room.lines[Rowwise].of(j, l)[0]
		}
		kernel.encode(rowsTile{
			codes: w.row.codesAt(l, c0).codes, src: w.x.bytes(l, l+1)[c0*size:], rows: 1, units: factorSide / rowsUnit,
			srcAhead: lineAhead, factors: room.ofRow[:parts], maxima: room.maxima,
		}, &c)
	}
}

// codesAt returns where codes of one byte belong, from a line and position on.
func (r *run) codesAt(line, position int) tilePlace {
	n := r.t.LineBytes()
	return tilePlace{codes: r.t.Codes[line*n+position:], codeStride: n}
}
