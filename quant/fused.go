package quant

// fusedRun is a fused kernel at work on the lines of one goroutine.
type fusedRun struct {
	*run
	kernel     fusedCall
	extent     int       // elements of a block
	blockBytes int       // of its codes
	src        []float32 // a group that the line does not fill, and its codes and scales
	codes      []byte
	scales     []byte
	scaled     []float32 // of one block, for the plain form
	plain      []byte
}

func (r *run) newFusedRun(kernel fusedCall) *fusedRun {
	extent := r.q.Format.Block.Cols
	blockBytes := extent * r.q.Format.Element.StoredBits() / 8
	return &fusedRun{
		run: r, kernel: kernel, extent: extent, blockBytes: blockBytes,
		src:    make([]float32, groupBlocks*extent),
		codes:  make([]byte, groupBlocks*blockBytes),
		scales: make([]byte, groupBlocks),
		scaled: make([]float32, extent),
		plain:  make([]byte, extent),
	}
}

// lines quantizes lines [from, to) and returns the bits of the amax it saw.
func (f *fusedRun) lines(from, to int) (amax uint32) {
	perLine := f.t.scaleCols()
	if f.x.Stride == f.x.Cols && f.x.Cols%f.extent == 0 { // blocks without a gap
		amax = f.blocks(from*perLine, f.x.Data[from*f.x.Cols:to*f.x.Cols])
	} else {
		for l := from; l < to; l++ {
			amax = max(amax, f.blocks(l*perLine, f.x.Row(l)))
		}
	}
	if f.with.Scales != nil {
		for l := from; l < to; l++ {
			f.with.Scales(l, f.t.lineScales(l))
		}
	}
	return amax
}

// blocks quantizes src, which begins with the given block of the tensor. The
// last block may be short.
func (f *fusedRun) blocks(first int, src []float32) (amax uint32) {
	const most = groupBlocks * callGroups
	for len(src) >= groupBlocks*f.extent {
		n := min(len(src)/f.extent/groupBlocks*groupBlocks, most)
		part := src[:n*f.extent]
		codes := f.t.Codes[first*f.blockBytes : (first+n)*f.blockBytes]
		a := f.kernel(codes, f.t.Scales[first:first+n], part, n/groupBlocks)
		if a == flagged {
			a = f.redo(first, part)
		}
		amax, first, src = max(amax, a), first+n, src[len(part):]
	}
	if len(src) == 0 {
		return amax
	}
	clear(f.src[copy(f.src, src):])
	a := f.kernel(f.codes, f.scales, f.src, 1)
	if a == flagged {
		return max(amax, f.redo(first, src))
	}
	n := ceilDiv(len(src), f.extent)
	copy(f.t.Scales[first:first+n], f.scales)
	copy(f.t.Codes[first*f.blockBytes:(first+n)*f.blockBytes], f.codes)
	return max(amax, a)
}

// redo is blocks in the plain form.
func (f *fusedRun) redo(first int, src []float32) (amax uint32) {
	for i := first; len(src) > 0; i++ {
		block := src[:min(f.extent, len(src))]
		a, hasNaN := amaxBits(block)
		f.encodePlain(f.plain[:len(block)], block, f.scaleBlock(i, a, hasNaN), f.scaled)
		clear(f.plain[len(block):])
		f.q.Format.Element.Join(f.t.Codes[i*f.blockBytes:(i+1)*f.blockBytes], f.plain)
		amax, src = max(amax, a), src[len(block):]
	}
	return amax
}
