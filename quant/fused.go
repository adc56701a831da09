package quant

// fusedRun is a fused kernel at work on the lines of one goroutine.
type fusedRun struct {
	*run
	kernel     fusedCall
	group      int // blocks
	extent     int // elements of a block
	blockBytes int // of its codes
	room       *fusedScratch
}

// fusedScratch is what only some lines need.
type fusedScratch struct {
	src    []byte // a group that the line does not fill, and its codes and scales
	codes  []byte
	scales []byte
	scaled []float32 // a block in the plain form, and its codes
	plain  []byte
}

func (r *run) newFusedRun(k *fusedKernel) *fusedRun {
	extent := r.q.Format.Block.Cols
	return &fusedRun{run: r, kernel: k.begin(r), group: k.group, extent: extent, blockBytes: extent * r.q.Format.Element.StoredBits() / 8}
}

// scratch makes the scratch space when it is first asked for.
func (f *fusedRun) scratch() *fusedScratch {
	if f.room == nil {
		f.room = &fusedScratch{
			src:    make([]byte, f.group*f.extent*f.x.elementBytes()),
			codes:  make([]byte, f.group*f.blockBytes),
			scales: make([]byte, f.group*len(f.t.scaleMemory(0, 1))),
			scaled: make([]float32, f.extent),
			plain:  make([]byte, f.extent),
		}
	}
	return f.room
}

// lines quantizes lines [from, to) and returns the bits of the amax it saw.
func (f *fusedRun) lines(from, to int) (amax uint32) {
	perLine := f.t.scaleCols()
	if !f.x.hasGaps() && f.x.cols()%f.extent == 0 { // one block behind the other
		amax = f.blocks(from*perLine, f.x.bytes(from, to))
	} else {
		for l := from; l < to; l++ {
			amax = max(amax, f.blocks(l*perLine, f.x.bytes(l, l+1)))
		}
	}
	if f.with.Scales != nil {
		for l := from; l < to; l++ {
			f.with.Scales(l, f.t.lineScales(l))
		}
	}
	f.endStream()
	return amax
}

// blocks quantizes the elements in src, which begin with the given block of the
// tensor. The last block may be short.
func (f *fusedRun) blocks(first int, src []byte) (amax uint32) {
	block := f.extent * f.x.elementBytes()
	group := f.group * block
	for len(src) >= group {
		n := min(len(src)/group, callBytes/group) * f.group
		part := src[:n*block]
		a := f.kernel(f.codes(first, n), f.t.scaleMemory(first, n), part, n/f.group)
		if a == flagged {
			a = f.redo(first, part)
		}
		amax, first, src = max(amax, a), first+n, src[len(part):]
	}
	if len(src) == 0 {
		return amax
	}
	room := f.scratch()
	clear(room.src[copy(room.src, src):])
	a := f.kernel(room.codes, room.scales, room.src, 1)
	if a == flagged {
		return max(amax, f.redo(first, src))
	}
	n := ceilDiv(len(src), block)
	copy(f.t.scaleMemory(first, n), room.scales)
	copy(f.codes(first, n), room.codes)
	return max(amax, a)
}

// codes returns the bytes of the codes of n blocks.
func (f *fusedRun) codes(first, n int) []byte {
	return f.t.Codes[first*f.blockBytes : (first+n)*f.blockBytes]
}

// redo is blocks in the plain form.
func (f *fusedRun) redo(first int, src []byte) (amax uint32) {
	room, x := f.scratch(), f.x.values(src)
	for i := first; len(x) > 0; i++ {
		block := x[:min(f.extent, len(x))]
		a, hasNaN := amaxBits(block)
		f.encodePlain(room.plain[:len(block)], block, f.scaleBlock(i, a, hasNaN), room.scaled)
		clear(room.plain[len(block):])
		f.q.Format.Element.Join(f.codes(i, 1), room.plain)
		amax, x = max(amax, a), x[len(block):]
	}
	return amax
}
