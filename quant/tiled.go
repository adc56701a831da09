package quant

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// A tiling makes the columnwise copy of a matrix, or both copies, tile by tile, so
// that the matrix is read once: a tile is in the second-level cache when its columns
// are turned. Each copy takes it in pieces, by whatever kernels serve matrices.
type tiling struct {
	x          source        // of the matrix, whose rows are its lines
	row, col   *run          // row is nil where the columnwise copy is alone
	rows, cols int           // of a tile
	turned     int           // columns of it that are turned at a time
	kernel     *factorKernel // for whole parts of it, or nil
	square     bool          // the kernel has the same codes for both copies
}

const (
	leastTile   = 128       // rows of a tile: so many codes of 4 bits fill a cache line
	tiledBytes  = 512 << 10 // of a tile, about
	turnedBytes = 64 << 10  // of columns that are turned at a time, about
)

// tileable reports whether a copy is made of tiles: not where a scale extends over
// several whole lines, or over parts of all. That of one line, or of the tensor, is found
// before, but where it is searched for or of transformed elements.
func (q *Quantizer) tileable() bool {
	switch b := q.Format.Block; {
	case b.Rows > 0 && b.Cols > 0:
		return true
	case b.Rows > 1 || b.Cols > 0:
		return false
	}
	return q.Search == NoSearch && !q.Hadamard
}

// newTiling returns the tiles of x: blocks of both copies divide them.
func newTiling(row, col *run) *tiling {
	x := col.x
	x.columns, x.transform = false, false
	down, right := tileSide, tileSide
	if row != nil {
		down, right = leastCommon(down, row.q.Format.Block.Rows), leastCommon(right, row.q.Format.Block.Cols)
	}
	down, band := leastCommon(down, col.q.Format.Block.Cols), leastCommon(tileSide, col.q.Format.Block.Rows)
	right = leastCommon(right, band)
	g := &tiling{x: x, row: row, col: col, rows: ceilDiv(leastTile, down) * down}
	g.cols = max(1, tiledBytes/(g.rows*x.elementBytes())/right) * right
	g.turned = max(1, turnedBytes/(4*g.rows)/band) * band
	g.kernel, g.square = factorKernelOf(row, col), sameCodes(row, col)
	return g
}

// leastCommon returns the least common multiple of a and b; 0 for b is none.
func leastCommon(a, b int) int {
	if b == 0 {
		return a
	}
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

// quantize makes the copies.
func (g *tiling) quantize(threads int) {
	seen := [2]atomic.Uint32{}
	room := lineRooms.Get().(*lineRoom)
	defer lineRooms.Put(room)
	if rows, cols := g.x.shape(); rows > 0 && cols > 0 {
		g.findLines(threads, room, &seen)
		g.walk(threads, &seen)
	}
	for d, r := range []*run{g.row, g.col} {
		if r != nil {
			r.saw(&seen[d])
		}
	}
}

// walk takes tiles one after the other from left to right, as memory has them.
func (g *tiling) walk(threads int, seen *[2]atomic.Uint32) {
	rows, cols := g.x.shape()
	bands, wide := ceilDiv(rows, g.rows), ceilDiv(cols, g.cols)*g.cols
	for wide > g.cols && bands*ceilDiv(cols, wide) < 2*threads {
		wide = ceilDiv(wide/2, g.cols) * g.cols
	}
	strips := ceilDiv(cols, wide)
	parallel.For(bands*strips, 1, threads, func(from, to int) {
		w := tilingRun{tiling: g, room: tilingRooms.Get().(*tilingRoom)}
		defer tilingRooms.Put(w.room)
		for i := from; i < to; i++ {
			l, c0 := i/strips*g.rows, i%strips*wide
			for c := c0; c < min(c0+wide, cols); c += g.cols {
				w.tile(l, min(l+g.rows, rows), c, min(c+g.cols, cols))
			}
		}
		g.col.endStream()
		for d := range seen {
			atomicMax(&seen[d], w.seen[d])
		}
	})
}

// A tilingRun is the tiles of one goroutine.
type tilingRun struct {
	*tiling
	room   *tilingRoom
	pieces [2][]*piece // by direction: few, since only tiles at the ends are smaller
	seen   [2]uint32   // bits of amaxes, by direction
}

// A tilingRoom is memory that a tilingRun borrows.
type tilingRoom struct {
	lines    []float32 // turned, or transformed
	pieces   [2]pieceRoom
	factored factoredRoom
}

var tilingRooms = sync.Pool{New: func() any { return new(tilingRoom) }}

// tile quantizes rows [l0, l1) of columns [c0, c1).
func (w *tilingRun) tile(l0, l1, c0, c1 int) {
	if w.kernel != nil {
		if end := c0 + (c1-c0)/factorSide*factorSide; w.factored(l0, l1, c0, end) {
			c0 = end
		}
	}
	if c0 < c1 {
		w.tilePieces(l0, l1, c0, c1)
	}
}

// tilePieces is tile by pieces.
func (w *tilingRun) tilePieces(l0, l1, c0, c1 int) {
	if w.row != nil {
		x := w.x.part(l0, l1, c0, c1)
		if w.row.x.transform {
			x = w.prepared(w.row, l0, l1, c0, c1)
		}
		w.piece(w.row, x, l0, c0)
	}
	for c := c0; c < c1; c += w.turned {
		end := min(c+w.turned, c1)
		if w.row == nil {
			w.x.part(l0, l1, c, end).fetch()
		}
		w.piece(w.col, w.prepared(w.col, c, end, l0, l1), c, l0)
	}
}

// prepared returns elements [p0, p1) of lines [l0, l1) of a copy, turned and transformed
// as it wants them.
func (w *tilingRun) prepared(r *run, l0, l1, p0, p1 int) source {
	lines, width := l1-l0, p1-p0
	grow(&w.room.lines, lines*width)
	if x := r.x; x.isRaw && !x.transform {
		const size = 2
		turned := memory.Bytes(w.room.lines)[:size*lines*width]
		transposePairs(turned, x.raw.Data[size*(p0*x.raw.Stride+l0):], width, lines, size*width, size*x.raw.Stride)
		return rawSource(tensor.OfBF16(lines, width, turned))
	}
	x := tensor.Of(lines, width, w.room.lines[:lines*width])
	r.x.prepare(x, l0, p0)
	return denseSource(x)
}

// piece quantizes x, which begins with the given line and position of a copy.
func (w *tilingRun) piece(r *run, x source, line, position int) {
	d := r.t.Direction
	var p *piece
	for _, old := range w.pieces[d] {
		if old.lines == x.rows() && old.width == x.cols() {
			p = old
		}
	}
	if p == nil {
		p = r.newPiece(x, &w.room.pieces[d])
		w.pieces[d] = append(w.pieces[d], p)
	}
	w.seen[d] = max(w.seen[d], p.quantize(x, line, position))
}

// A lineRoom is memory for what is found of lines, by direction: the bits of amaxes, and
// factors.
type lineRoom struct {
	bits  [2][]uint32
	known [2][]blockFactor

	factors, scales [16 * factorGroup]float32 // of some lines
}

var lineRooms = sync.Pool{New: func() any { return new(lineRoom) }}

// findLines finds the scales of lines that have one each, of both copies in one read.
func (g *tiling) findLines(threads int, room *lineRoom, seen *[2]atomic.Uint32) {
	var bits [2][]uint32
	for d, r := range []*run{g.row, g.col} {
		if r != nil && r.q.Format.Scaled() && r.q.Format.Block.Cols == 0 && !r.q.Format.PerTensor() {
			n := r.x.rows()
			grow(&room.bits[d], ceilDiv(n, factorGroup)*factorGroup)
			grow(&room.known[d], n)
			bits[d], r.known = room.bits[d][:n], room.known[d][:n]
			clear(bits[d])
		}
	}
	if bits[Rowwise] == nil && bits[Columnwise] == nil {
		return
	}
	rows, cols := g.x.shape()
	var together sync.Mutex
	parallel.For(ceilDiv(rows, linesAtOnce), max(1, tiledBytes/4/linesAtOnce/cols), threads, func(from, to int) {
		own := newRoomy(1, len(bits[Columnwise]))
		defer own.giveBack()
		clear(own.Data)
		for i := from; i < to; i++ {
			g.lineMaxima(i*linesAtOnce, min((i+1)*linesAtOnce, rows), bits[Rowwise], own.Data)
		}
		together.Lock()
		defer together.Unlock()
		raiseMaxima(asFloats(bits[Columnwise]), own.Data)
	})
	for d, r := range []*run{g.row, g.col} {
		if bits[d] == nil || g.knowLines(r, room, &seen[d]) {
			continue
		}
		for l, a := range bits[d] {
			hasNaN := a > exponentMask
			if hasNaN {
				a = r.x.lineBits(l)
			}
			r.known[l] = r.scaleBlock(l, a, hasNaN)
			atomicMax(&seen[d], a)
		}
	}
}

// knowLines finds the factors and scales of lines by a kernel, and reports whether it
// could: where there is one, and no Inf or NaN. Behind the amaxes of the lines there is
// what fills up a group.
func (g *tiling) knowLines(r *run, room *lineRoom, seen *atomic.Uint32) bool {
	n, amaxes, factors, scales := len(r.known), room.bits[r.t.Direction], room.factors[:], room.scales[:]
	most := slices.Max(amaxes[:n])
	if g.kernel == nil || r.q.Arithmetic != EncodeFirst || most >= exponentMask {
		return false
	}
	c := r.q.bytesConstants()
	for l := 0; l < n; l += len(factors) {
		m := min(len(factors), n-l)
		g.kernel.factors(factors, scales, amaxes[l:l+ceilDiv(m, factorGroup)*factorGroup], &c)
		copy(r.t.Scales32[l:], scales[:m])
		for i, f := range factors[:m] {
			r.known[l+i] = blockFactor{factor: factor{value: f}}
		}
	}
	atomicMax(seen, most)
	return true
}

// linesAtOnce is the rows whose maxima, and those of columns, are found at a time.
const linesAtOnce = 2 * factorGroup

// lineMaxima raises what there is of maxima of all rows, and of all columns, to the bits
// of rows [l0, l1).
func (g *tiling) lineMaxima(l0, l1 int, rows []uint32, columns []float32) {
	var room [linesAtOnce]uint32
	along := room[:l1-l0]
	if rows != nil {
		along = rows[l0:l1]
	}
	if len(columns) == 0 {
		for l := l0; l < l1; l++ {
			along[l-l0] = g.x.maxBits(g.x.bytes(l, l+1))
		}
		return
	}
	down, whole := asBits(columns), 0
	if g.kernel != nil {
		for ; whole+factorSide <= len(down); whole += factorSide {
			g.raiseTile(along, down[whole:], l0, whole)
		}
	}
	g.raiseRows(along, down[whole:], l0, whole)
}

// raiseMaxima raises each of maxima to the bits of |x[i]|.
func raiseMaxima(maxima, x []float32) {
	if len(x) == 0 {
		return
	}
	for _, k := range lineKernels {
		if k.tier <= cpu.Best() {
			k.maxima(maxima, x)
			return
		}
	}
	for i, v := range x {
		maxima[i] = math.Float32frombits(max(math.Float32bits(maxima[i]), math.Float32bits(v)&absMask))
	}
}
