package quant

import "github.com/microscale-go/microscale/format"

// A piece is a part of one copy at work in one goroutine: some elements of some
// lines, whole blocks of both, that are quantized as a matrix by itself, to a tensor
// in the cache, and then copied to where they belong.
type piece struct {
	run
	lines  int
	width  int
	encode func(from, to int) (amax uint32)
	place  *fusedRun // where lines have whole groups: it writes codes to where they belong, and there is no tensor between
}

// A pieceRoom is memory that a piece borrows: for its tensor, and by line for what a
// factoredRun encodes with and finds.
type pieceRoom struct {
	codes, scales  []byte
	scales32       []float32
	values, maxima []float32
}

// tensor returns a tensor in the room, whatever it holds.
func (r *pieceRoom) tensor(f Format, d Direction, lines, width int) *Tensor {
	rows, cols := lines, width
	if d == Columnwise {
		rows, cols = cols, rows
	}
	t := &Tensor{Format: f, Direction: d, Shape: []int{rows, cols}}
	n := lines * t.LineBytes()
	grow(&r.codes, n)
	t.Codes = r.codes[:n]
	switch n := t.scaleRows() * t.scaleCols(); {
	case f.Scale == format.F32:
		grow(&r.scales32, n)
		t.Scales32 = r.scales32[:n]
	case f.Scaled():
		grow(&r.scales, n)
		t.Scales = r.scales[:n]
	}
	return t
}

// newPiece returns a piece for what comes as x does, of as many lines and elements.
func (r *run) newPiece(x source, room *pieceRoom) *piece {
	p := &piece{run: *r, lines: x.rows(), width: x.cols()}
	p.of, p.memory, p.x, p.stream, p.with.Scales = r, room, x, false, nil
	if k := p.fused(); k != nil && r.t.Direction == Rowwise && k.group*r.t.extent() <= p.width {
		of := *r // its lines are those of the matrix, and memory of x is handed over
		of.x = x
		p.place = of.newFusedRun(k)
		return p
	}
	p.t = room.tensor(r.q.Format, r.t.Direction, p.lines, p.width)
	p.t.Global, p.t.Amax = r.t.Global, r.t.Amax
	p.encode = p.run.newBands(p.run.band())
	return p
}

// quantize quantizes x, which begins with the given line and position of the copy,
// and returns the bits of the amax it saw.
func (p *piece) quantize(x source, line, position int) (amax uint32) {
	p.x, p.line, p.position = x, line, position
	if p.place != nil {
		return p.place.rows(line*p.of.t.scaleCols()+position/p.of.t.extent(), x, 0, p.lines)
	}
	if p.of.known != nil { // of lines of the copy
		p.known = p.of.known[line : line+p.lines]
	}
	amax = p.encode(0, p.lines)
	p.paste()
	return amax
}

// paste copies codes and scales to their place.
func (p *piece) paste() {
	f, to := p.q.Format, p.of.t
	n, stride := p.t.LineBytes(), to.LineBytes()
	p.of.pasteCodes(to.Codes[p.line*stride+p.position*f.Element.StoredBits()/8:], p.t.Codes, n, p.lines, stride)
	if !f.Scaled() || f.Block.Cols == 0 { // there is none, or it is known before
		return
	}
	perLine, each := to.scaleCols(), p.t.scaleCols()
	first := p.line/f.Block.Rows*perLine + p.position/f.Block.Cols
	if to.Scales32 != nil {
		pasteScales(to.Scales32[first:], p.t.Scales32, each, each, perLine)
	} else {
		pasteScales(to.Scales[first:], p.t.Scales, each, each, perLine)
	}
}

// pasteCodes copies n bytes of each line to places that are stride apart: past the caches,
// where these are whole cache lines.
func (r *run) pasteCodes(dst, src []byte, n, lines, stride int) {
	if spread := spreader(); spread != nil && n%spreadUnit == 0 && stride%spreadUnit == 0 && r.streamsTo(dst) {
		spread(dst, src, n/spreadUnit, lines, stride)
		return
	}
	for i := range lines {
		copy(dst[i*stride:][:n], src[i*n:])
	}
}

// pasteScales copies so many scales of each line to places that are stride apart, from
// places that are gap apart: few of many lines, so that the usual numbers are moved at once.
func pasteScales[T byte | float32](dst, src []T, each, gap, stride int) {
	for i := 0; i*gap < len(src); i++ {
		to, from := dst[i*stride:][:each], src[i*gap:][:each]
		switch each {
		case 1:
			to[0] = from[0]
		case 2:
			*(*[2]T)(to) = *(*[2]T)(from)
		case 4:
			*(*[4]T)(to) = *(*[4]T)(from)
		case 8:
			*(*[8]T)(to) = *(*[8]T)(from)
		default:
			copy(to, from)
		}
	}
}

// lineFactor returns what elements of line l are encoded with, where it is known before.
func (r *run) lineFactor(l int) (f blockFactor, ok bool) {
	if r.known != nil {
		return r.known[l], true
	}
	return r.whole, r.q.Format.PerTensor()
}

// A factoredRun is a rows kernel at work on pieces whose factors are known.
type factoredRun struct{ *rowsRun }

// lines quantizes lines [from, to). It returns no amax, which is known besides.
func (w factoredRun) lines(from, to int) (amax uint32) {
	cols := w.x.cols()
	units, together := cols/rowsUnit, 1
	if !w.x.hasGaps() && cols%rowsUnit == 0 { // one line behind the other
		together = to - from
	}
	grow(&w.memory.values, to)
	grow(&w.memory.maxima, to*maximaLanes)
	values, maxima := w.memory.values[:to], w.memory.maxima[:to*maximaLanes]
	clear(maxima)
	usable := true
	for l := from; l < to; l++ {
		f, _ := w.lineFactor(l)
		values[l] = f.value
		usable = usable && f.isFactor()
	}
	for l := from; l < to && usable; l += together {
		n := min(together, to-l)
		dst, src := w.t.Codes[l*cols:(l+n)*cols], w.x.bytes(l, l+n)
		w.kernel.encode(rowsTile{
			codes: dst, src: src, next: src, rows: 1, units: units, srcAhead: lineAhead,
			factors: values[l : l+n], maxima: maxima[l*maximaLanes:],
		}, w.constants(dst))
		if end := units * rowsUnit; end < cols {
			block := w.rowsRun.values(src[end*w.x.elementBytes():])
			f, _ := w.lineFactor(l)
			w.encodePlain(dst[end:], block, f, w.roomFor(len(block)))
		}
	}
	if usable && maxBits(maxima) < exponentMask {
		return 0
	}
	return w.plainBands(nil, from, to, 1)
}
