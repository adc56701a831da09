package quant

import "sync"

// fusedRun is a fused kernel at work on the lines of one goroutine.
type fusedRun struct {
	*run
	kernel     fusedCall
	group      int // blocks
	extent     int // elements of a block
	blockBytes int // of its codes
}

// A fusedRoom is memory for what only some lines need.
type fusedRoom struct {
	src, codes, scales []byte    // of ends of lines
	scaled             []float32 // a block in the plain form, and its codes
	plain              []byte
}

var fusedRooms = sync.Pool{New: func() any { return new(fusedRoom) }}

// endBytes is about how much of the source the ends of lines take that are quantized at a
// time: several groups, which stay in the first-level cache with their codes.
const endBytes = 8 << 10

func (r *run) newFusedRun(k *fusedKernel) *fusedRun {
	extent := r.q.Format.Block.Cols
	return &fusedRun{run: r, kernel: k.begin(r), group: k.group, extent: extent, blockBytes: extent * r.q.Format.Element.StoredBits() / 8}
}

// lines quantizes lines [from, to) and returns the bits of the amax it saw.
func (f *fusedRun) lines(from, to int) (amax uint32) {
	amax = f.rows(from*f.t.scaleCols(), f.x, from, to)
	if f.with.Scales != nil {
		for l := from; l < to; l++ {
			f.with.Scales(l, f.t.lineScales(l))
		}
	}
	f.endStream()
	return amax
}

// rows quantizes rows [from, to) of x, which are lines of the tensor, or parts of lines
// below each other, and begin with the given block.
func (f *fusedRun) rows(first int, x source, from, to int) (amax uint32) {
	perLine := f.t.scaleCols()
	if !x.hasGaps() && x.cols() == perLine*f.extent { // one block behind the other
		return f.blocks(first, x.bytes(from, to))
	}
	bytes, block := x.cols()*x.elementBytes(), f.extent*x.elementBytes()
	end := ceilDiv(bytes%(f.group*block), block)
	together := endBytes / (max(1, end) * block)
	for l := from; l < to; l += together {
		n := min(together, to-l)
		amax = max(amax, f.parts(lineParts{first, perLine, x.bytes(l, l+n), x.strideBytes(), bytes, n}))
		first += n * perLine
	}
	return amax
}

// blocks quantizes the elements in src, which begin with the given block of the
// tensor. The last block may be short.
func (f *fusedRun) blocks(first int, src []byte) (amax uint32) {
	return f.parts(lineParts{first: first, src: src, bytes: len(src), lines: 1})
}

// lineParts are parts of some lines, below each other.
type lineParts struct {
	first, perLine int // block, and from one line to the next
	src            []byte
	stride, bytes  int // from one line to the next, and of each part
	lines          int
}

func (p *lineParts) line(i int) []byte { return p.src[i*p.stride:][:p.bytes] }

// parts quantizes parts of lines, the last block of each of which may be short.
func (f *fusedRun) parts(p lineParts) (amax uint32) {
	block := f.extent * f.x.elementBytes()
	group := f.group * block
	whole := p.bytes / group * group
	if whole > 0 {
		for i := range p.lines {
			amax = max(amax, f.groups(p.first+i*p.perLine, p.line(i)[:whole]))
		}
	}
	if whole == p.bytes {
		return amax
	}
	p.first, p.src, p.bytes = p.first+whole/block, p.src[whole:], p.bytes-whole
	return max(amax, f.ends(p))
}

// groups quantizes whole groups of blocks.
func (f *fusedRun) groups(first int, src []byte) (amax uint32) {
	block := f.extent * f.x.elementBytes()
	group := f.group * block
	for len(src) > 0 {
		n := min(len(src)/group, callBytes/group) * f.group
		part, codes := src[:n*block], f.codes(first, n)
		a := f.kernel(codes, f.t.scaleMemory(first, n), part, n/f.group, f.streamsTo(codes))
		if a == flagged {
			a = f.redo(first, part)
		}
		amax, first, src = max(amax, a), first+n, src[len(part):]
	}
	return amax
}

// ends quantizes parts of lines that fill no group each: filled up with zeros to whole
// blocks, they are one behind the other, and so are their codes before these are written
// to their place.
func (f *fusedRun) ends(p lineParts) (amax uint32) {
	room := fusedRooms.Get().(*fusedRoom)
	defer fusedRooms.Put(room)
	block, scale := f.extent*f.x.elementBytes(), len(f.t.scaleMemory(p.first, 1))
	width, lines := ceilDiv(p.bytes, block), p.lines
	groups := ceilDiv(lines*width, f.group)
	grow(&room.src, groups*f.group*block)
	grow(&room.codes, groups*f.group*f.blockBytes)
	grow(&room.scales, groups*f.group*scale)
	src := room.src[:groups*f.group*block]
	for i := range lines {
		to := src[i*width*block:][:width*block]
		clear(to[copy(to, p.line(i)):])
	}
	clear(src[lines*width*block:])
	if amax = f.kernel(room.codes, room.scales, src, groups, false); amax == flagged {
		amax = 0
		for i := range lines {
			amax = max(amax, f.redo(p.first+i*p.perLine, p.line(i)))
		}
		return amax
	}
	if width == p.perLine { // their places are, too
		width, lines = lines*width, 1
	}
	n := (lines-1)*p.perLine + width
	f.pasteCodes(f.codes(p.first, n), room.codes, width*f.blockBytes, lines, p.perLine*f.blockBytes)
	pasteScales(f.t.scaleMemory(p.first, n), room.scales[:lines*width*scale], width*scale, width*scale, p.perLine*scale)
	return amax
}

// codes returns the bytes of the codes of n blocks.
func (f *fusedRun) codes(first, n int) []byte {
	return f.t.Codes[first*f.blockBytes : (first+n)*f.blockBytes]
}

// redo is blocks in the plain form.
func (f *fusedRun) redo(first int, src []byte) (amax uint32) {
	room, x := fusedRooms.Get().(*fusedRoom), f.x.values(src)
	defer fusedRooms.Put(room)
	grow(&room.scaled, f.extent)
	grow(&room.plain, f.extent)
	plain := room.plain[:f.extent]
	for i := first; len(x) > 0; i++ {
		block := x[:min(f.extent, len(x))]
		a, hasNaN := amaxBits(block)
		f.encodePlain(plain[:len(block)], block, f.scaleBlock(i, a, hasNaN), room.scaled)
		clear(plain[len(block):])
		f.q.Format.Element.Join(f.codes(i, 1), plain)
		amax, x = max(amax, a), x[len(block):]
	}
	return amax
}
