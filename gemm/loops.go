package gemm

// multiply computes the product with the five loops around the micro-kernel. Every
// thread of a job runs it. Within the two outer loops the threads share the tasks of two
// phases: packing a block of B, and multiplying by it.
//
//	jc   columns of C, NC at a time
//	pc   positions along K, KC at a time       pack NC×KC of B once, for all threads
//	ic   rows of C, at most MC at a time       pack mc×KC of A, for this thread
//	jr   columns of the block, NR at a time    NR×KC of B stay in the first or second cache
//	ir   rows of the block, MR at a time       micro-kernel: one tile of C
//
// A macro-kernel contains the innermost loop.
//
// Only KC affects the rounding of sums.
func (w *worker) multiply() {
	j := w.job
	p, k := &j.plan, j.plan.kernel
	ncMax := j.columns()
	mcMax, groups := j.split()
	blocks := ceilDiv(j.height(), mcMax)
	phase := int64(0)
	for jc := j.cols.from; jc < j.cols.to; jc += ncMax {
		nc := min(ncMax, j.cols.to-jc)
		tiles := ceilDiv(nc, k.NR)
		for pc := 0; pc < p.k; pc += k.KC {
			kc := min(k.KC, p.k-pc)
			w.chunks, w.steps = p.b.geometry(kc)
			w.aPanel, w.bPanel = p.a.panelBytes(kc), p.b.panelBytes(kc)
			accumulate := j.accumulate || pc > 0

			b := j.packed.panels(jc, pc)
			if b == nil {
				b = j.b
				for i, ok := j.take(phase, tiles); ok; i, ok = j.take(phase, tiles) {
					for l := i * k.NR; l < min((i+1)*k.NR, nc); l += k.Lanes {
						p.b.pack(b[l/k.Lanes*w.bPanel:(l/k.Lanes+1)*w.bPanel], jc+l, pc, kc, &w.scratch)
					}
					j.finish(1, tiles)
				}
				phase++
			}

			for i, ok := j.take(phase, blocks*groups); ok; i, ok = j.take(phase, blocks*groups) {
				ic, group := j.rows.from+i/groups*mcMax, i%groups
				mc := min(mcMax, j.rows.to-ic)
				first, last := tiles*group/groups, tiles*(group+1)/groups
				if first == last { // the last block may have fewer tiles than groups
					j.finish(1, blocks*groups)
					continue
				}
				if j.bias != nil && pc == 0 {
					w.addBias(ic, ic+mc, jc+first*k.NR, min(jc+last*k.NR, jc+nc))
				}
				for l := 0; l < mc; l += k.Lanes {
					p.a.pack(w.a[l/k.Lanes*w.aPanel:(l/k.Lanes+1)*w.aPanel], ic+l, pc, kc, &w.scratch)
				}
				end := min(last*k.NR, nc)
				for jr := first * k.NR; jr < end; jr += k.width(end - jr) {
					nr := k.width(end - jr)
					panels := b[jr/k.Lanes*w.bPanel:]
					if k.macro != nil {
						w.macroTile(ic, jc+jr, mc, nr, panels, accumulate || j.bias != nil)
					} else {
						w.tiles(ic, jc+jr, mc, nr, panels, accumulate || j.bias != nil)
					}
				}
				j.finish(1, blocks*groups)
			}
			phase++
		}
	}
}
