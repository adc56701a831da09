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
	factors       []blockFactor // of a line in the plain form
	scaled        []float32
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

// streamsTo reports whether codes at dst are written past the caches.
func (r *run) streamsTo(dst []byte) bool {
	const line = 64
	return r.stream && uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%line == 0
}

// isFactor reports whether the kernels multiply by f.
func (f blockFactor) isFactor() bool {
	return !f.poison && !f.divide && !f.bf16 && f.value > 0 && f.value <= maxFloat32
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
				a, _ = amaxBits(w.x.values(raw))
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
			maxima := [maximaLanes]float32{}
			w.kernel.encode(dst, raw, next, whole/rowsUnit, []float32{f.value}, maxima[:], w.constants(dst))
			a = maxFloatBits(maxima[:])
			if whole < cols {
				block := w.x.values(raw[whole*size:])
				w.encodePlain(dst[whole:cols], block, f, w.roomFor(len(block)))
			}
			clear(dst[cols:])
			if next != nil && whole < cols {
				a = max(a, w.x.maxBits(next[whole*size:]))
			}
		} else {
			line := w.x.values(raw)
			w.encodeLine(dst, l, line, w.lineFactors(f), w.roomFor(w.t.storedWidth()), nil)
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
// third-level cache.
const tileBytes = 8 << 20

// A blockTile is blocks beside each other that extend over several lines, with
// what they are encoded with.
type blockTile struct {
	l0, l1   int // lines
	first, n int // blocks; n is 0 beyond the last tile
	factors  []float32
	others   []int // blocks that the plain form encodes, and their factors
	plain    []blockFactor
}

// bands quantizes lines [from, to) in blocks that extend over several: of one tile
// the amaxes are found while the one before is encoded.
func (w *rowsRun) bands(from, to, band int) (amax uint32) {
	extent, size := w.t.extent(), w.x.elementBytes()
	whole, perLine := w.x.cols()/extent, w.t.scaleCols()
	width := max(1, min(whole, tileBytes/2/(band*extent*size)))
	maxima := make([]float32, width*maximaLanes)
	before, tile := &blockTile{factors: make([]float32, width)}, &blockTile{factors: make([]float32, width)}
	for first := 0; first < whole || before.n > 0; first += width {
		for l0 := from; l0 < to && (first < whole || before.n > 0); l0 += band {
			*tile = blockTile{l0: l0, l1: min(l0+band, to), first: first, n: max(0, min(width, whole-first)), factors: tile.factors[:width]}
			clear(maxima)
			w.tileRows(before, tile, maxima)
			for i, j := range before.others {
				w.encodeBlock(before.l0, before.l1, j, before.plain[i])
			}
			for j := range tile.n {
				a := maxFloatBits(maxima[j*maximaLanes : (j+1)*maximaLanes])
				hasNaN := a > exponentMask
				if hasNaN {
					a = w.blockAmax(tile.l0, tile.l1, first+j, w.x.room())
				}
				amax = max(amax, a)
				f := w.scaleBlock(l0/band*perLine+first+j, a, hasNaN)
				tile.factors[j] = f.value
				if hasNaN || a == exponentMask || !f.isFactor() {
					tile.factors[j] = 1
					tile.others, tile.plain = append(tile.others, first+j), append(tile.plain, f)
				}
			}
			before, tile = tile, before
		}
	}
	for j := whole; j < perLine; j++ { // which the lines end within
		for l0 := from; l0 < to; l0 += band {
			l1 := min(l0+band, to)
			a, hasNaN := w.blockBits(l0, l1, j)
			amax = max(amax, a)
			w.encodeBlock(l0, l1, j, w.scaleBlock(l0/band*perLine+j, a, hasNaN))
		}
	}
	w.endStream()
	return amax
}

// tileRows encodes a tile and finds the maxima of the next one, row by row; either
// may have no blocks.
func (w *rowsRun) tileRows(tile, next *blockTile, maxima []float32) {
	extent := w.t.extent()
	blockBytes := extent * w.x.elementBytes()
	for r := range max(tile.l1-tile.l0, next.l1-next.l0) {
		var codes, src, coming []byte
		if l := tile.l0 + r; tile.n > 0 && l < tile.l1 {
			codes, src = w.t.line(l)[tile.first*extent:], w.x.bytes(l, l+1)[tile.first*blockBytes:]
		}
		if l := next.l0 + r; next.n > 0 && l < next.l1 {
			coming = w.x.bytes(l, l+1)[next.first*blockBytes:]
		}
		both := min(tile.n, next.n)
		if codes == nil || coming == nil {
			both = 0
		}
		c := w.constants(codes)
		if both > 0 {
			w.kernel.encode(codes, src, coming, extent/rowsUnit, tile.factors[:both], maxima, c)
			codes, src, coming = codes[both*extent:], src[both*blockBytes:], coming[both*blockBytes:]
		}
		if codes != nil && tile.n > both {
			w.kernel.encode(codes, src, nil, extent/rowsUnit, tile.factors[both:tile.n], maxima, c)
		}
		if coming != nil && next.n > both {
			w.kernel.encode(nil, nil, coming, extent/rowsUnit, next.factors[both:next.n], maxima[both*maximaLanes:], c)
		}
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

// blockBits returns the bits of the largest magnitude of a block, NaN aside, and
// whether there is NaN.
func (w *rowsRun) blockBits(l0, l1, j int) (amax uint32, hasNaN bool) {
	room := w.x.room()
	c0, c1 := w.blockCols(j)
	for l := l0; l < l1; l++ {
		a, nan := amaxBits(w.x.row(l, room)[c0:c1])
		amax, hasNaN = max(amax, a), hasNaN || nan
	}
	return amax, hasNaN
}

// encodeBlock encodes block j of lines [l0, l1) in the plain form.
func (w *rowsRun) encodeBlock(l0, l1, j int, f blockFactor) {
	room := w.x.room()
	c0, c1 := w.blockCols(j)
	for l := l0; l < l1; l++ {
		line := w.t.line(l)
		w.encodePlain(line[c0:c1], w.x.row(l, room)[c0:c1], f, w.roomFor(c1-c0))
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
