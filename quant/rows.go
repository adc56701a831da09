package quant

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
)

// rowsUnit is the elements that a rowsKernel takes at a time.
const rowsUnit = 64

// A rowsRun is a rows kernel at work on the lines of one goroutine.
type rowsRun struct {
	*run
	kernel        *rowsKernel
	plain, stream bytesConstants
	factor        [1]float32 // of a line
	maxima        [maximaLanes]float32
	tile          tileRun
	factors       []blockFactor // of a line in the plain form
	scaled        []float32
	room          []float32 // a line, or a part of one, as float32
}

func (r *run) newRowsRun(k *rowsKernel) *rowsRun {
	c := r.q.bytesConstants()
	stream := c
	stream.stream = 1
	return &rowsRun{run: r, kernel: k, plain: c, stream: stream}
}

// constants returns those for codes that begin at dst.
func (w *rowsRun) constants(dst []byte) *bytesConstants {
	if w.streamsTo(dst) {
		return &w.stream
	}
	return &w.plain
}

// values returns the values of memory of the source, which are valid until it is
// called again.
func (w *rowsRun) values(b []byte) []float32 {
	if w.x.isRaw {
		grow(&w.room, len(b)/2)
		widen(w.room[:len(b)/2], b)
		return w.room[:len(b)/2]
	}
	return w.x.values(b)
}

// lineRoom returns space for the values of a line, nil where it needs none.
func (w *rowsRun) lineRoom() []float32 { return w.x.roomIn(&w.room) }

// streamsTo reports whether codes at dst are written past the caches.
func (r *run) streamsTo(dst []byte) bool {
	const line = 64
	return r.stream && uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%line == 0
}

// isFactor reports whether the kernels multiply by f.
func (f blockFactor) isFactor() bool {
	return !f.poison && !f.divide && f.isPlain() && f.value > 0 && f.value <= maxFloat32
}

// lines quantizes lines [from, to), each under one scale, and returns the bits of
// the amax it saw.
func (w *rowsRun) lines(from, to int) (amax uint32) {
	if from == to {
		return 0
	}
	cols, size := w.x.cols(), w.x.elementBytes()
	whole := cols / rowsUnit * rowsUnit
	own := !w.q.Format.PerTensor()
	raw := w.x.bytes(from, from+1)
	a := w.x.maxBits(raw)
	for l := from; l < to; l++ {
		f := w.whole
		hasNaN := a > exponentMask
		if own {
			if hasNaN {
				a, _ = amaxBits(w.values(raw))
			}
			amax = max(amax, a)
			f = w.scaleBlock(l, a, hasNaN)
		}
		var next []byte
		if l+1 < to {
			next = w.x.bytes(l+1, l+2)
		}
		dst := w.t.line(l)
		if !hasNaN && a < exponentMask && f.isFactor() {
			w.factor[0], w.maxima = f.value, [maximaLanes]float32{}
			w.kernel.encode(rowsTile{
				codes: dst, src: raw, next: next, rows: 1, units: whole / rowsUnit,
				srcAhead: lineAhead, nextAhead: nextAhead, factors: w.factor[:], maxima: w.maxima[:],
			}, w.constants(dst))
			a = maxFloatBits(w.maxima[:])
			if whole < cols {
				block := w.values(raw[whole*size:])
				w.encodePlain(dst[whole:cols], block, f, w.roomFor(len(block)))
			}
			clear(dst[cols:])
			if next != nil && whole < cols {
				a = max(a, w.x.maxBits(next[whole*size:]))
			}
		} else {
			w.encodeLine(dst, l, w.values(raw), w.lineFactors(f), w.roomFor(w.t.storedWidth()), nil)
			if next != nil {
				a = w.x.maxBits(next)
			}
		}
		raw = next
	}
	if w.with.Scales != nil {
		for l := from; l < to; l++ {
			w.with.Scales(l, w.t.lineScales(l))
		}
	}
	w.endStream()
	return amax
}

// lineFactors returns f for all blocks of a line.
func (w *rowsRun) lineFactors(f blockFactor) []blockFactor {
	if w.factors == nil {
		w.factors = make([]blockFactor, w.t.scaleCols())
	}
	for i := range w.factors {
		w.factors[i] = f
	}
	return w.factors
}

// roomFor returns space for n scaled elements.
func (w *rowsRun) roomFor(n int) []float32 {
	if len(w.scaled) < n {
		w.scaled = make([]float32, n)
	}
	return w.scaled
}

// tileBytes is about how much of the source two tiles take: they stay in the
// second-level cache, of 1 MB at least where this was measured.
const tileBytes = 512 << 10

// How far ahead a rows kernel fetches: what comes next to the second-level cache,
// since the first one is full of what is encoded, and that from whatever cache it is
// in by then. Of a line, in bytes; of a tile, in units, and in rows of what comes next.
const (
	nextAhead  = 8192
	lineAhead  = 1024
	unitsAhead = 1
	rowsAhead  = 6
)

// A blockTile is n blocks beside each other that extend over lines [l0, l1).
type blockTile struct{ l0, l1, first, n int }

// part returns blocks [from, to) of a tile.
func (t blockTile) part(from, to int) blockTile {
	return blockTile{t.l0, t.l1, t.first + from, to - from}
}

// A tileRun is what the blocks of a tile are encoded with.
type tileRun struct {
	factors []float32
	maxima  []float32 // of the blocks of the next tile
	others  []int     // blocks that the plain form encodes, and their factors
	plain   []blockFactor
}

// bands quantizes lines [from, to) in blocks that extend over several: of one tile
// the amaxes are found while the one before is encoded.
func (w *rowsRun) bands(from, to, band int) (amax uint32) {
	extent, size := w.t.extent(), w.x.elementBytes()
	whole, perLine := w.x.cols()/extent, w.t.scaleCols()
	beside := ceilDiv(whole, max(1, tileBytes/2/(band*extent*size))) // tiles, about equally wide
	tiles := ceilDiv(to-from, band) * beside
	tileAt := func(i int) blockTile {
		if i >= tiles {
			return blockTile{}
		}
		l0, column := from+i/beside*band, i%beside
		first := column * whole / beside
		return blockTile{l0, min(l0+band, to), first, (column+1)*whole/beside - first}
	}
	var before blockTile
	t := &w.tile
	widest := ceilDiv(whole, max(1, beside))
	grow(&t.factors, widest)
	grow(&t.maxima, widest*maximaLanes)
	for i := 0; i <= tiles; i++ {
		tile := tileAt(i)
		clear(t.maxima)
		w.encodeTile(before, tile, tileAt(i+1))
		for i, j := range t.others {
			w.encodeBlock(before.l0, before.l1, j, t.plain[i])
		}
		t.others, t.plain = t.others[:0], t.plain[:0]
		for j := range tile.n {
			a := maxFloatBits(t.maxima[j*maximaLanes : (j+1)*maximaLanes])
			hasNaN := a > exponentMask
			if hasNaN {
				a, _ = w.blockAmax(tile.l0, tile.l1, tile.first+j, w.lineRoom())
			}
			amax = max(amax, a)
			f := w.scaleBlock(tile.l0/band*perLine+tile.first+j, a, hasNaN)
			t.factors[j] = f.value
			if hasNaN || a == exponentMask || !f.isFactor() {
				t.factors[j] = 1
				t.others, t.plain = append(t.others, tile.first+j), append(t.plain, f)
			}
		}
		before = tile
	}
	for j := whole; j < perLine; j++ { // which the lines end within
		for l0 := from; l0 < to; l0 += band {
			l1 := min(l0+band, to)
			a, hasNaN := w.blockAmax(l0, l1, j, w.lineRoom())
			amax = max(amax, a)
			w.encodeBlock(l0, l1, j, w.scaleBlock(l0/band*perLine+j, a, hasNaN))
		}
	}
	w.endStream()
	return amax
}

// encodeTile encodes a tile and finds the maxima of the next one; either may have no
// blocks. What lies where the one after that begins is fetched.
func (w *rowsRun) encodeTile(tile, next, after blockTile) {
	both := min(tile.n, next.n)
	if tile.l1-tile.l0 != next.l1-next.l0 {
		both = 0
	}
	w.encodeRows(tile.part(0, both), next.part(0, both), after, 0)
	w.encodeRows(tile.part(both, tile.n), blockTile{}, blockTile{}, both)
	w.encodeRows(blockTile{}, next.part(both, next.n), after, both)
}

// encodeRows is encodeTile where both are of one size, or one has no blocks: those
// from the given one on of the tiles.
func (w *rowsRun) encodeRows(tile, next, after blockTile, block int) {
	n, rows := max(tile.n, next.n), max(tile.l1-tile.l0, next.l1-next.l0)
	if n == 0 {
		return
	}
	extent, stride := w.t.extent(), w.x.strideBytes()
	blockBytes := extent * w.x.elementBytes()
	first := func(t blockTile, row int) int { return (t.l0+row)*stride + t.first*blockBytes }
	for row := 0; row < rows; {
		k := rowsTile{
			rows: rows - rowsAhead, units: extent / rowsUnit, codeGap: w.t.LineBytes() - n*extent, srcGap: stride - n*blockBytes,
			srcAhead: unitsAhead * rowsUnit * w.x.elementBytes(), nextAhead: rowsAhead * stride,
			factors: w.tile.factors[block : block+n], maxima: w.tile.maxima[block*maximaLanes:],
		}
		if row == max(0, rows-rowsAhead) { // the first ones of the next tiles come after these
			k.rows, k.nextAhead = rows-row, 0
			if next.n > 0 && after.n > 0 {
				k.nextAhead = first(after, 0) - first(next, row)
			}
		}
		if tile.n > 0 {
			k.codes, k.src = w.t.line(tile.l0 + row)[tile.first*extent:], w.x.bytes(tile.l0+row, tile.l1)[tile.first*blockBytes:]
		}
		if next.n > 0 {
			k.next = w.x.bytes(next.l0+row, next.l1)[next.first*blockBytes:]
		}
		w.kernel.encode(k, w.constants(k.codes))
		row += k.rows
	}
}

// maximaLanes is the maxima that a rowsKernel raises for a block.
const maximaLanes = 16

// maxFloatBits returns the largest of the bits of x.
func maxFloatBits(x []float32) (most uint32) {
	for _, v := range x {
		most = max(most, math.Float32bits(v))
	}
	return most
}

// encodeBlock encodes block j of lines [l0, l1) in the plain form.
func (w *rowsRun) encodeBlock(l0, l1, j int, f blockFactor) {
	room := w.lineRoom()
	c0, c1 := w.blockCols(j)
	for l := l0; l < l1; l++ {
		line := w.t.line(l)
		w.encodePlain(line[c0:c1], w.x.elements(l, c0, c1, room), f, w.roomFor(c1-c0))
		clear(line[c1:min((j+1)*w.t.extent(), len(line))])
	}
}

// maxBits is the function maxBits of memory that bytes returned.
func (s source) maxBits(b []byte) uint32 {
	switch {
	case len(b) == 0:
		return 0
	case s.isRaw:
		return maxBitsBF16(b)
	}
	return maxBits(s.values(b))
}

// maxBitsBF16 is maxBits of BF16 elements, at least one.
func maxBitsBF16(src []byte) (amax uint32) {
	for _, k := range amaxBF16Kernels {
		if k.tier <= cpu.Best() {
			return k.amax(src)
		}
	}
	for i := 0; i < len(src); i += 2 {
		amax = max(amax, (uint32(src[i])<<16|uint32(src[i+1])<<24)&absMask)
	}
	return amax
}
