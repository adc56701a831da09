package quant

import (
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// A bothKernel quantizes tiles of a matrix to the rowwise and to the columnwise
// copy, which are of the same format, or to the columnwise one alone. It flags as a
// fusedKernel does.
type bothKernel struct {
	tier     cpu.Tier
	raw      bool // the source is BF16, else float32
	part     int  // rows that it reads at a time
	serves   func(*Quantizer) bool
	begin    func(*run) bothCall // of either copy
	alone    func(*run) bothCall // of the columnwise copy, for it alone
	collects bool                // codes are collected before they are written past the caches
}

// A bothCall quantizes tiles.
type bothCall func(tiles) uint32

// tiles are n tiles beside each other, at least one.
type tiles struct {
	byRow, byColumn tilePlace
	src             []byte
	srcStride, n    int
	rows            int // of each; less than tileSide, in whole parts, is for the columnwise copy alone
	next            int // bytes from the last tile's source to what is read after it, which is fetched
}

// A tilePlace is where the codes and scales of the first tile belong, with the
// distances of lines in bytes.
type tilePlace struct {
	codes, scales           []byte
	codeStride, scaleStride int
	near                    bool // codes are collected there, and are to stay in the caches
}

const (
	tileSide  = 64   // rows and columns of a tile
	stripSize = 1024 // columns that are quantized from top to bottom: few enough for their lines to stay within reach, and enough to read a good part of each row
	bandRows  = 256  // rows whose codes of columns are collected where the kernel does not write them past the caches
	chunkSize = 1024 // rows that a goroutine takes at a time, if there are enough: others write to other cache lines of scales
)

// quantizeTiles makes the columnwise copy, and the rowwise one unless it is nil, of
// tiles of the matrix: by a kernel for both, where there is one.
func quantizeTiles(row, col *run) {
	threads := col.with.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	if k := bothKernelOf(row, col); k != nil {
		k.quantize(row, col, threads)
	} else {
		newTiling(row, col).quantize(threads)
	}
	for _, r := range []*run{row, col} {
		if r != nil && r.with.Scales != nil {
			for l := range r.x.rows() {
				r.with.Scales(l, r.t.lineScales(l))
			}
		}
	}
}

// quantize is both copies, or the columnwise one where row is nil.
func (k *bothKernel) quantize(row, col *run, threads int) {
	rows, cols := col.x.cols(), col.x.rows()
	strips, chunk := ceilDiv(cols, stripSize), chunkSize
	for chunk > tileSide && strips*ceilDiv(rows, chunk) < 2*threads {
		chunk /= 2
	}
	chunks := ceilDiv(rows, chunk)
	var seen atomic.Uint32
	// A kernel that writes past the caches itself does that for both copies, or for none.
	collects := k.collects || row != nil && !row.place(0, 0).streamsFrom(row) || !col.place(0, 0).streamsFrom(col)
	parallel.For(strips*chunks, 1, threads, func(from, to int) {
		w := bothRun{row: row, col: col, x: col.x, part: k.part, alone: k.alone(col), collects: collects, room: bothRooms.Get().(*bothRoom)}
		defer bothRooms.Put(w.room)
		w.kernel = w.alone
		if row != nil {
			w.kernel = k.begin(row)
		}
		var amax uint32
		for i := from; i < to; i++ {
			c0, l0 := i/chunks*stripSize, i%chunks*chunk
			amax = max(amax, w.chunk(l0, min(l0+chunk, rows), c0, min(c0+stripSize, cols)))
		}
		col.endStream()
		atomicMax(&seen, amax)
	})
	if row != nil {
		row.saw(&seen)
	}
	col.saw(&seen)
}

// bothKernelOf returns the first kernel for both copies, or for the columnwise one where
// row is nil, of a matrix that is as wide as a tile at least, or nil.
func bothKernelOf(row, col *run) *bothKernel {
	x, q := col.x, col.q
	if q.Search != NoSearch || q.Hadamard || !q.Format.Scaled() || x.rows() < tileSide || x.cols() == 0 || row != nil && (row.global != col.global || !reflect.DeepEqual(row.q, q)) {
		return nil
	}
	for i, k := range bothKernels {
		if k.tier <= cpu.Best() && k.raw == x.isRaw && k.serves(q) {
			return &bothKernels[i]
		}
	}
	return nil
}

// A bothRun is a kernel for both copies at work in one goroutine.
type bothRun struct {
	row, col      *run      // row is nil where the columnwise copy is alone
	x             source    // of the matrix: its rows are asked for by bytes
	kernel, alone bothCall  // of what there is to make, and of the columnwise copy
	part          int       // rows that they read at a time
	low           *fusedRun // of rows that are less than a tile
	collects      bool
	rows, columns collected
	room          *bothRoom
}

// A bothRoom is memory that a bothRun borrows.
type bothRoom struct {
	rows, columns []byte // that are collected
	src           []byte // copied
	edge          edgeTile
}

var bothRooms = sync.Pool{New: func() any { return new(bothRoom) }}

// A collected part of a copy is lines of codes that are written to their place when
// there is a good part of each.
type collected struct {
	from, to tilePlace // the same where codes are written to their place, else from is near, lines behind each other
	bytes    int       // of a line
}

// An edgeTile is a tile that the matrix does not fill.
type edgeTile struct {
	codes, turned [tileSide * tileSide]byte
	scales        [stripSize * tileSide / 16]byte // of so many columns, at most one in 16 elements
}

// chunk quantizes rows [l0, l1) of columns [c0, c1), which begin with a tile.
func (w *bothRun) chunk(l0, l1, c0, c1 int) (amax uint32) {
	for l := l0; l < l1; l += bandRows {
		amax = max(amax, w.band(l, min(l+bandRows, l1), l1, c0, c1))
	}
	return amax
}

// band is chunk of at most bandRows rows, which others follow up to end.
func (w *bothRun) band(l0, l1, end, c0, c1 int) (amax uint32) {
	whole := (c1 - c0) / tileSide * tileSide
	w.collect(&w.columns, &w.room.columns, w.col, w.col.place(c0, l0), whole, (l1-l0)/tileSide*tileSide)
	stride := w.x.strideBytes()
	for l := l0; l < l1; l += tileSide {
		bottom := min(l+tileSide, l1)
		switch {
		case whole == 0:
		case bottom-l < tileSide:
			amax = max(amax, w.short(l, bottom, c0, whole/tileSide))
		default:
			next := 0
			if bottom < end {
				next = tileSide*stride - (whole-tileSide)*w.x.elementBytes()
			}
			w.collect(&w.rows, &w.room.rows, w.row, w.row.place(l, c0), tileSide, whole)
			amax = max(amax, w.tiles(l, c0, l-l0, 0, whole/tileSide, next))
			w.write(&w.rows, w.row, tileSide)
		}
		if c := c0 + whole; c < c1 {
			amax = max(amax, w.narrow(l, bottom, c, c1))
		}
	}
	w.write(&w.columns, w.col, whole)
	return amax
}

// collect begins a part of a copy: so many lines, and elements of each, of whole
// tiles. Rows that do not begin with cache lines are written as they come, since their
// parts follow each other.
func (w *bothRun) collect(p *collected, room *[]byte, r *run, to tilePlace, lines, elements int) {
	p.from, p.to = to, to
	if r == nil || !r.stream || !w.collects || lines*elements == 0 || r == w.row && !to.streamsFrom(r) {
		return
	}
	p.bytes = elements * r.q.Format.Element.StoredBits() / 8
	grow(room, lines*p.bytes)
	p.from.codes, p.from.codeStride, p.from.near = *room, p.bytes, true
}

// write writes what was collected of so many lines.
func (w *bothRun) write(p *collected, r *run, lines int) {
	switch {
	case !p.from.near:
	case p.bytes%spreadUnit == 0 && p.to.streamsFrom(r):
		spreader()(p.to.codes, p.from.codes, p.bytes/spreadUnit, lines, p.to.codeStride)
	default:
		for i := range lines {
			copy(p.to.codes[i*p.to.codeStride:][:p.bytes], p.from.codes[i*p.bytes:])
		}
	}
}

// place returns where the codes and scales of a tile belong that begins with the
// given line and position of it: nowhere, where there is no run.
func (r *run) place(line, position int) tilePlace {
	if r == nil {
		return tilePlace{}
	}
	return r.behind(tilePlace{codes: r.t.Codes, scales: r.t.Scales, codeStride: r.t.LineBytes(), scaleStride: r.t.scaleCols()}, line, position)
}

// behind returns the place so many lines and positions behind p.
func (r *run) behind(p tilePlace, lines, positions int) tilePlace {
	if r == nil {
		return p
	}
	p.codes = p.codes[lines*p.codeStride+positions*r.q.Format.Element.StoredBits()/8:]
	p.scales = p.scales[lines*p.scaleStride+positions/r.t.extent():]
	return p
}

// tiles quantizes n whole tiles, the first of which begins in row l and column c, down
// and right from where a part begins that is collected.
func (w *bothRun) tiles(l, c, down, right, n, next int) (amax uint32) {
	size, stride := w.x.elementBytes(), w.x.strideBytes()
	src := w.x.bytes(l, l+tileSide)[c*size:]
	rows, columns := w.row.behind(w.rows.from, 0, right), w.col.behind(w.columns.from, right, down)
	amax = w.kernel(tiles{rows, columns, src, stride, n, tileSide, next})
	switch {
	case amax != flagged:
	case n == 1:
		amax = w.redo(rows, columns, l, l+tileSide, c, c+tileSide)
	default:
		amax = 0
		for i := range n {
			amax = max(amax, w.tiles(l, c+i*tileSide, down, right+i*tileSide, 1, 0))
		}
	}
	return amax
}

// short quantizes rows [l0, l1), less than those of a tile, of n tiles from column c on.
func (w *bothRun) short(l0, l1, c, n int) (amax uint32) {
	size, end := w.x.elementBytes(), c+n*tileSide
	if w.row != nil {
		if w.low == nil {
			w.low = w.row.newFusedRun(w.row.fused())
		}
		perLine := w.row.t.scaleCols()
		for l := l0; l < l1; l++ {
			amax = max(amax, w.low.blocks(l*perLine+c/w.low.extent, w.x.bytes(l, l+1)[c*size:end*size]))
		}
	}
	whole := l0 + (l1-l0)/w.part*w.part
	if l0 < whole {
		src := w.x.bytes(l0, whole)[c*size:]
		amax = max(amax, w.shortColumns(tiles{src: src, srcStride: w.x.strideBytes(), n: n, rows: whole - l0}, l0, whole, c))
	}
	if whole < l1 {
		src := copyRows(&w.room.src, w.x, whole, l1, c, end, w.part, n*tileSide)
		amax = max(amax, w.shortColumns(tiles{src: src, srcStride: n * tileSide * size, n: n, rows: w.part}, whole, l1, c))
	}
	return amax
}

// shortColumns is the columnwise copy of tiles of rows [l0, l1), the first of which begins
// with column c.
func (w *bothRun) shortColumns(t tiles, l0, l1, c int) (amax uint32) {
	each, scales := tileSide/w.col.t.extent(), w.room.edge.scales[:]
	t.byColumn = w.col.place(c, l0)
	to := t.byColumn
	t.byColumn.near, t.byColumn.scales, t.byColumn.scaleStride = true, scales, each
	if amax = w.alone(t); amax != flagged {
		pasteScales(to.scales, scales[:t.n*tileSide*each], t.rows/w.col.t.extent(), each, to.scaleStride)
		return amax
	}
	amax = 0
	for i := range t.n {
		first := c + i*tileSide
		amax = max(amax, w.redo(w.row.place(l0, first), w.col.place(first, l0), l0, l1, first, first+tileSide))
	}
	return amax
}

// copyRows copies rows [l0, l1) of columns [c0, c1) to a matrix of so many, zeros elsewhere.
func copyRows(room *[]byte, x source, l0, l1, c0, c1, rows, cols int) []byte {
	size := x.elementBytes()
	grow(room, rows*cols*size)
	left := (*room)[:rows*cols*size]
	for l := l0; l < l1; l++ {
		row := left[:cols*size]
		clear(row[copy(row, x.bytes(l, l+1)[c0*size:c1*size]):])
		left = left[len(row):]
	}
	clear(left)
	return (*room)[:rows*cols*size]
}

// narrow quantizes a tile that has not all its columns, and perhaps not all its rows.
func (w *bothRun) narrow(l0, l1, c0, c1 int) (amax uint32) {
	e, size := &w.room.edge, w.x.elementBytes()
	src := copyRows(&w.room.src, w.x, l0, l1, c0, c1, tileSide, tileSide)
	bits, perLine := w.col.q.Format.Element.StoredBits(), ceilDiv(tileSide, w.col.t.extent())
	lineBytes := tileSide * bits / 8
	rows := tilePlace{codes: e.codes[:], scales: e.scales[:], codeStride: lineBytes, scaleStride: perLine, near: true}
	columns := tilePlace{codes: e.turned[:], scales: e.scales[tileSide*perLine:], codeStride: lineBytes, scaleStride: perLine, near: true}
	if amax = w.kernel(tiles{rows, columns, src, tileSide * size, 1, tileSide, 0}); amax == flagged {
		return w.redo(w.row.place(l0, c0), w.col.place(c0, l0), l0, l1, c0, c1)
	}
	if w.row != nil {
		w.row.paste(l0, l1, c0, c1, rows)
	}
	w.col.paste(c0, c1, l0, l1, columns)
	return amax
}

// paste copies lines [l0, l1) from position p0 to p1 of them to their place.
func (r *run) paste(l0, l1, p0, p1 int, from tilePlace) {
	n := ceilDiv(p1-p0, r.t.extent())
	codes := n * r.t.extent() * r.q.Format.Element.StoredBits() / 8
	to := r.place(l0, p0)
	for i := range l1 - l0 {
		copy(to.codes[i*to.codeStride:][:codes], from.codes[i*from.codeStride:])
		copy(to.scales[i*to.scaleStride:][:n], from.scales[i*from.scaleStride:])
	}
}

// redo is the plain form of rows [l0, l1) of columns [c0, c1), to the given places.
func (w *bothRun) redo(rows, columns tilePlace, l0, l1, c0, c1 int) (amax uint32) {
	size := w.x.elementBytes()
	values := tensor.New(l1-l0, c1-c0)
	for l := l0; l < l1; l++ {
		copy(values.Row(l-l0), w.x.values(w.x.bytes(l, l+1)[c0*size:c1*size]))
	}
	if w.row != nil {
		w.row.redoLines(rows, l0, c0, values)
	}
	turned := tensor.New(c1-c0, l1-l0)
	transpose(turned, values)
	return w.col.redoLines(columns, c0, l0, turned)
}

// redoLines is the plain form of parts of lines, from a position on, whose codes go
// to the given place.
func (r *run) redoLines(to tilePlace, line, position int, values tensor.Dense) (amax uint32) {
	extent := r.t.extent()
	codes, scaled := make([]byte, extent), make([]float32, extent)
	stored := extent * r.q.Format.Element.StoredBits() / 8
	for i := range values.Rows {
		for p := 0; p < values.Cols; p += extent {
			block := values.Row(i)[p:min(p+extent, values.Cols)]
			a, hasNaN := amaxBits(block)
			j := (position + p) / extent
			r.encodePlain(codes[:len(block)], block, r.scaleBlock((line+i)*r.t.scaleCols()+j, a, hasNaN), scaled)
			clear(codes[len(block):])
			r.q.Format.Element.Join(to.codes[i*to.codeStride+p/extent*stored:][:stored], codes)
			amax = max(amax, a)
		}
	}
	return amax
}

// streamsFrom reports whether all the codes of a tile, and of those beside it, are
// written past the caches.
func (p tilePlace) streamsFrom(r *run) bool {
	return !p.near && r.streamsTo(p.codes) && p.codeStride%spreadUnit == 0
}

// pointers returns the places of codes and of scales.
func (p tilePlace) pointers() (codes, scales *byte) {
	return unsafe.SliceData(p.codes), unsafe.SliceData(p.scales)
}
