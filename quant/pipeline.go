package quant

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/parallel"
)

// One walk over tiles quantizes for every format, direction, source and option:
//
//	prescale  the scale of the tensor, or of each stored row, from a read before (prescale.go)
//	tile      for each tile of the matrix, and each copy of it:
//	  load      a view of the matrix, or its rows transposed or transformed in scratch
//	  amax      of each block
//	  scale     amax → scale code and factor; a search may replace them
//	  encode    elements × factor → codes
//
// A tile takes the first of four paths that supports it:
//
//	columnwise copy = transposed rowwise copy, of square blocks   rowwise_columnwise.go
//	columns: a kernel encodes and transposes codes                columns.go
//	a fused kernel does amax, scale and encode of rows, and
//	finds amaxes of columns where it can                          fused.go
//	rows stage by stage; a columnwise tile is transposed before   rows.go
//
// Primitives and their contracts are in primitives.go. The reference implementation encodes
// the blocks that a kernel does not support.

const (
	grainElements = 1 << 14   // minimum work of a goroutine
	streamBytes   = 4 << 20   // minimum source whose codes are written by non-temporal stores
	rowTileBytes  = 128 << 10 // source of a tile of a rowwise copy, at least: stages read it again
	fusedBytes    = 512 << 10 // the same at most, where a fused kernel reads it once
	tileBytes     = 256 << 10 // source of a tile of a columnwise copy, or of blocks of several rows: it stays in the second-level cache
	tileRows      = 128       // minimum rows of a tile of a columnwise copy
	tileSide      = 64        // rows and columns of a tile of column kernels
	loadBytes     = 64 << 10  // transposed rows in scratch, about
)

// An output is one copy of the matrix that a call makes.
type output struct {
	q      *Quantizer
	t      *Tensor
	x      source // the matrix
	with   With
	global global

	tensorFactor factor        // of a format with one scale per tensor
	rowFactors   []factor      // of each stored row, where they are found before tiles
	finite       bool          // scales were found before, and no element is NaN or Inf
	stream       bool          // codes are written by non-temporal stores
	seen         atomic.Uint32 // bits of the largest amax

	divides bool // elements are divided by their factor
	kernels
	search *scaleSearch
	random philoxConstants
}

// kernels are the kernels of an output, with their constants.
type kernels struct {
	of      kernelsOf
	fused   [2]*fusedCall // for float32 and for BF16 sources; nil where there is none
	columns func(columnPart, *encodeConstants)
	scales  func(factors []float32, scales []byte, amaxes []uint32) (amax uint32)
	encodes func(codes []byte, src, factors []float32, extent int, c *encodeConstants)
	encode  encodeConstants
}

// kernelsOf is what the kernels of several outputs may depend on. The zero value means that they
// depend on more, and belong to one output.
type kernelsOf struct {
	q      Quantizer
	tier   cpu.Tier
	bf16   bool // the source
	global global
}

// prepare sets o to one copy of x. It computes the global scale and the scale of the tensor, if the
// format has them.
func (o *output) prepare(q *Quantizer, x source, d Direction, with With) {
	rows, cols := x.rows, x.cols
	t := with.Into
	if t == nil {
		t = newTensor(q.Format, d, rows, cols)
	}
	*o = output{kernels: o.kernels, q: q, t: t, x: x, with: with, stream: rows*cols*x.size >= streamBytes}
	if q.Format.Global && with.Inverse != nil {
		o.global = givenGlobal(*with.Inverse) // before t.Amax and t.Global are set, one of which it may be
	}
	hasNaN := with.NaN
	if q.Format.NeedsAmax() {
		if with.Amax != nil {
			t.Amax = *with.Amax
		}
		if with.Amax == nil || q.Format.PerTensor() && q.NonFinite != Tolerate && with.Inverse == nil {
			amax, isNaN := o.amax()
			o.finite = q.Format.PerTensor() && !isNaN && amax <= maxFloat32
			if hasNaN = hasNaN || isNaN; with.Amax == nil {
				t.Amax = amax
			}
		}
	}
	t.Global = 1 // after reading the values of With, which may point into t
	if q.Format.Global {
		if with.Inverse == nil {
			o.global = arithmetics[q.Arithmetic].global(t.Amax, q.Format.Element.Max(), q.top())
		}
		t.Global = o.global.decode
	}
	if q.Format.PerTensor() && rows > 0 && cols > 0 {
		o.tensorFactor = o.scaleWhole(hasNaN)
	}
	if q.Format.Scaled() {
		o.prepareKernels()
	}
}

// prepareKernels chooses the kernels of o and their constants. It keeps those of the previous
// output if they depend only on the quantizer and the global scale.
func (o *output) prepareKernels() {
	o.divides = o.tensorFactor.divide
	if !o.q.Format.PerTensor() {
		o.divides = o.q.blockScale(1, false, o.global).divide
	}
	if o.q.Search != NoSearch {
		o.search = o.newScaleSearch()
	}
	if o.q.Rounding == format.Stochastic {
		o.random = o.with.Random.philoxConstants()
	}
	var of kernelsOf
	if !o.q.Format.PerTensor() && o.t.Direction == Rowwise {
		of = kernelsOf{*o.q, cpu.Best(), o.x.isBF16(), o.global}
	}
	if of == o.of && of != (kernelsOf{}) {
		return
	}
	o.kernels = kernels{of: of}
	o.encode = newEncodeConstants(o.q.Format.Element)
	o.encodes = o.encodeKernel()
	o.fused[0] = o.fusedCall(false)
	if o.x.isBF16() {
		o.fused[1] = o.fusedCall(true)
	}
	if o.t.Direction == Columnwise {
		o.columns = o.columnKernel()
	}
	if k := first(scaleKernels, func(k *scaleKernel) bool { return cpu.Uses(k.needs) && k.supports.holds(o.q) }); k != nil &&
		o.q.Search == NoSearch {
		o.scales = k.begin(o)
	}
}

// A pipeline is the walk of one call over the tiles of a matrix.
type pipeline struct {
	x          source
	outputs    [2]*output // by direction; nil where it is not asked for
	rows, cols int        // of a tile
	transposes bool       // the columnwise copy is the transpose of the rowwise one
}

// run makes the copies that are not nil. They share the reads of the matrix unless the tiles of one
// must have whole rows or columns.
func (p *pipeline) run(x source, row, col *output, threads int) {
	if row != nil && col != nil && (row.needsWholeRows() || col.needsWholeRows()) {
		p.run(x, row, nil, threads)
		p.run(x, nil, col, threads)
		return
	}
	*p = pipeline{x: x, outputs: [2]*output{row, col}}
	if p.transposes = row != nil && col != nil && col.transposes(row); p.transposes {
		row.stream = false // its codes are read again
	}
	if rows, cols := x.rows, x.cols; rows > 0 && cols > 0 {
		p.plan(threads)
		if p.prescales(row) || p.prescales(col) {
			w := workers.Get().(*worker)
			defer workers.Put(w)
			p.prescale(w, threads)
		}
		p.walk(threads)
	}
	if p.transposes {
		col.t.setTransposedScales(row.t)
		col.seen.Store(row.seen.Load())
	}
	for _, o := range p.outputs {
		if o != nil {
			o.finish(threads)
		}
	}
}

// needsWholeRows reports whether a tile must have whole stored rows of o. That is so if a scale
// extends over a row and prescale cannot find it: it is searched for, it is that of transformed
// elements, or several rows share it.
func (o *output) needsWholeRows() bool {
	b := o.q.Format.Block
	if !o.q.Format.Scaled() || o.q.Format.PerTensor() {
		return false
	}
	return o.searchesRows() || b.Rows == 0 || b.Cols == 0 && (b.Rows > 1 || o.q.Search != NoSearch || o.q.Hadamard)
}

// plan chooses tiles that hold whole blocks of the copies, and fit in a cache.
func (p *pipeline) plan(threads int) {
	if p.outputs[Columnwise] == nil {
		p.planRows(p.outputs[Rowwise], threads)
	} else {
		p.planColumns(p.outputs[Rowwise], p.outputs[Columnwise])
	}
}

// planRows chooses the tiles of a rowwise copy alone. A call of a fused kernel has a fixed cost, so
// its tiles are larger, provided that each goroutine has enough.
func (p *pipeline) planRows(row *output, threads int) {
	rows, cols := p.x.rows, p.x.cols
	size, block := p.x.size, row.q.Format.Block
	if row.q.Format.PerTensor() || !row.q.Format.Scaled() {
		block = Shape{1, 0}
	}
	p.rows, p.cols = block.Rows, cols
	switch {
	case block.Rows == 0:
		p.rows = rows
	case block.Rows > 1 && block.Cols > 0: // part of a row of blocks
		p.cols = max(1, tileBytes/(size*block.Rows*block.Cols)) * block.Cols
	default:
		bytes := rowTileBytes
		if row.fused[index(p.x.isBF16())] != nil && !row.q.Hadamard {
			tiles := 1
			if n := parallel.Threads(threads); n > 1 {
				tiles = parallel.PerThread * n
			}
			bytes = min(fusedBytes, max(bytes, size*rows*cols/tiles))
		}
		p.rows = max(1, bytes/(size*cols*block.Rows)) * block.Rows
	}
}

// planColumns chooses the tiles of a columnwise copy, and of a rowwise one unless that is nil. The
// codes of a column of a tile are whole cache lines.
func (p *pipeline) planColumns(row, col *output) {
	rows, cols := p.x.rows, p.x.cols
	bits, block := col.q.Format.Element.StoredBits(), col.q.Format.Block
	down := leastCommon(leastCommon(8*cacheLine, bits)/bits, tileSide)
	down, right := leastCommon(down, block.Cols), leastCommon(tileSide, block.Rows)
	if row != nil {
		block := row.q.Format.Block
		down, right = leastCommon(down, block.Rows), leastCommon(right, block.Cols)
		if call := row.fused[index(p.x.isBF16())]; call != nil {
			right = leastCommon(right, call.group*block.Cols)
		}
	}
	p.rows = ceilDiv(tileRows, down) * down
	if col.needsWholeRows() {
		p.rows = rows
	}
	p.cols = max(1, tileBytes/(p.x.size*p.rows)/right) * right
	if col.needsWholeRows() && block.Rows == 0 {
		p.cols = cols
	}
}

// leastCommon returns the least common multiple of a and b, a where b is 0.
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

// walk quantizes all tiles, from top to bottom: rows that a kernel prefetches below a tile are those
// of the next one.
func (p *pipeline) walk(threads int) {
	tiles := ceilDiv(p.x.rows, p.rows) * ceilDiv(p.x.cols, p.cols)
	grain := max(1, grainElements/(p.rows*p.cols))
	parallel.ForState(tiles, grain, threads, p, (*pipeline).tiles)
}

// tiles quantizes tiles from ≤ tile < to.
func (p *pipeline) tiles(from, to int) {
	rows, cols := p.x.rows, p.x.cols
	down := ceilDiv(rows, p.rows)
	w := workers.Get().(*worker)
	for i := from; i < to; i++ {
		r0, c0 := i%down*p.rows, i/down*p.cols
		next := i + 1
		w.ahead = (next%down*p.rows-r0)*p.x.stride + (next/down*p.cols-c0)*p.x.size
		w.tile(p, r0, min(r0+p.rows, rows), c0, min(c0+p.cols, cols))
	}
	fence()
	w.random.of = nil // which the pool would keep
	workers.Put(w)
}

// A worker is the scratch memory of one goroutine.
type worker struct {
	loaded, values, scaled []float32 // rows of a tile; one widened; a block before rounding
	source, codes, scales  []byte    // padded rows; codes and scales before they are copied
	plain                  []byte    // codes of a block, one to a byte
	amaxes, columnMaxima   []uint32  // by block; by column
	factors, spread        []float32 // by block; by 16 elements
	blocks                 []factor
	maxima                 [2][]uint32 // by stored row, of the copies of a call
	rowFactors             [2][]factor // the same
	exceptional            []int       // blocks for the reference implementation
	search                 searchScratch
	ahead                  int // bytes from a tile to the one that is prefetched while it is encoded
	random                 randomWords
}

var workers = sync.Pool{New: func() any { return new(worker) }}

// tile quantizes rows [r0, r1) of columns [c0, c1).
func (w *worker) tile(p *pipeline, r0, r1, c0, c1 int) {
	if o := p.outputs[Rowwise]; o != nil {
		x := p.x.view(r0, r1, c0, c1)
		if o.q.Hadamard {
			x = w.load(o, r0, r1, c0, c1)
		}
		if col := p.outputs[Columnwise]; col != nil && !p.transposes && o.findsColumns(col, x) {
			w.fusedColumns(o, o.fused[index(x.isBF16())], x, r0, c0, col.q.Format.Block.Cols)
			w.columns(col, x, c0, r0, true)
			return
		}
		w.rows(o, x, r0, c0)
	}
	o := p.outputs[Columnwise]
	switch {
	case o == nil:
		return
	case p.transposes:
		o.transposeTile(p.outputs[Rowwise], r0, r1, c0, c1)
		return
	case !o.q.Format.Scaled() && !o.q.Hadamard:
		w.castColumns(o, p.x.view(r0, r1, c0, c1), c0, r0)
		return
	}
	if o.columns != nil {
		w.columns(o, p.x.view(r0, r1, c0, c1), c0, r0, false)
		return
	}
	height := max(1, o.q.Format.Block.Rows)
	if o.q.Format.Block.Rows == 0 && !o.q.Format.PerTensor() && o.q.Format.Scaled() {
		height = c1 - c0
	}
	step := max(1, loadBytes/(4*(r1-r0))/height) * height
	for c := c0; c < c1; c += step {
		end := min(c+step, c1)
		w.rows(o, w.load(o, c, end, r0, r1), c, r0)
	}
}

// load returns positions [p0, p1) of stored rows [r0, r1), transposed and transformed for the
// copy.
func (w *worker) load(o *output, r0, r1, p0, p1 int) source {
	n := (r1 - r0) * (p1 - p0)
	dst := denseOf(r1-r0, p1-p0, grow(&w.loaded, n))
	o.load(dst, r0, p0, &w.values)
	return denseSource(dst)
}

// scaleBlock stores the scale of block i and returns how its elements are encoded.
func (o *output) scaleBlock(i int, amax uint32, hasNaN bool) factor {
	s := o.q.blockScale(math.Float32frombits(amax), hasNaN, o.global)
	o.storeScale(i, s.code, s.value)
	return s.factor
}

// storeScale stores the scale of block i.
func (o *output) storeScale(i int, code byte, value float32) {
	if o.t.Scales32 != nil {
		o.t.Scales32[i] = value
	} else {
		o.t.Scales[i] = code
	}
}

// finish sets the amax of the tensor, unless its scales needed it, and passes the scales to
// With.Scales.
func (o *output) finish(threads int) {
	if !o.q.Format.NeedsAmax() {
		o.t.Amax = math.Float32frombits(o.seen.Load())
	}
	if o.with.Scales == nil {
		return
	}
	parallel.For(o.t.StoredRows(), max(1, grainElements/max(1, o.t.StoredCols())), threads, func(from, to int) {
		for row := from; row < to; row++ {
			o.with.Scales(row, o.t.rowScales(row))
		}
	})
}

// codesAt returns the stored codes from an element on.
func (o *output) codesAt(row, pos int) []byte {
	return o.t.Codes[row*o.t.RowBytes()+pos*o.q.Format.Element.StoredBits()/8:]
}

// scaleAt returns the index of the scale of an element.
func (o *output) scaleAt(row, pos int) int {
	return blockIndex(row, o.q.Format.Block.Rows)*o.t.scaleCols() + blockIndex(pos, o.q.Format.Block.Cols)
}

// element returns the index of an element in the tensor, by rows of the matrix.
func (o *output) element(row, pos int) uint64 {
	if o.t.Direction == Columnwise {
		row, pos = pos, row
	}
	return o.with.element(row, pos, o.t.Cols())
}
