package gemm

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
)

// A vectorKernel multiplies a few rows of A by B from B's codes, where packing B would take
// longer than the product: its time is that of reading B. The rows of A are decoded beforehand
// into the kernel's order: to BF16, to float32, or, if the elements of both operands are small
// integers, to integers with their scales.
//
//	y[b][l] += Σ over groups of blocks · Σ over blocks of scale[l] · Σ x[b][k]·w[l][k]
//
// Products within a block use VDPBF16PS or VFMADD231PS, or are exact with VPDPBUSD, VPMADDUBSW or SDOT.
// Blocks are added in float32. Kernels read whole steps of codes and the scales of whole groups, so
// that at the end of a row they read what follows it in memory, times zeros. Rows after which that
// is missing are copied and padded, and so is a partial step if its codes could be infinite or NaN.
//
// The rows of A are divided into passes of 1, 2 or 4. All passes read a part of B before any
// reads the next, so that it is in a cache for all but the first.
type vectorKernel struct {
	block, bits int
	step        int // positions that it decodes together
	// scale format of the blocks; E8M0 kernels also support rows with one FP32 scale; nil: unscaled
	scale  *format.Scalar
	lanes  int                                   // lanes of its vectors, of float32 kernels
	tables func(e *format.Scalar) unsafe.Pointer // constants for an element format; nil for unsupported ones

	// for single rows of B, and for pairs of rows of B if a pass has several rows of A; nil: single supports all passes. No single: portable
	// Go
	single, pairs vectorFunc
	most          int // maximum rows of A in a pass; 0: 4

	interleaved interleavedFunc // instead of single and pairs, for operands B of this form
	integers    bool            // of interleaved kernels: panel is panelInt8
	amplify     int             // the power of two in elements of A, which stay finite; not 0: they are in BF16 or float32
	signs       bool            // moves signs of B to A, so that no element of A may be the lowest integer
}

// A vectorFunc adds to y the products of a few rows of A with rows or pairs of rows of B. It reports codes or
// scales that it does not support.
type vectorFunc func(p vectorArgs) (found uint64)

// vectorArgs are the arguments of a vectorFunc. Distances are in bytes.
type vectorArgs struct {
	w, s, x          unsafe.Pointer // codes and scales of B, and rows of A
	steps            int
	rows             int // of B, or pairs of them
	ahead            int // from a code that is read to one that is prefetched
	wStride, sStride int // from the codes and the scales of a row of B to those of the next
	wNext, sNext     int // from the end of the steps and of the groups of a row (or pair) to the next
	y                unsafe.Pointer
	xStride, yStride int            // from a row of A, and from the products with it, to the next
	batch            int            // rows of A: 1, 2 or 4
	sums, tables     unsafe.Pointer // scratch memory, and vectorKernel.tables
}

const (
	vectorRows   = 64      // maximum rows of B in a task
	vectorBlocks = 16      // maximum blocks in a group
	vectorBytes  = 1 << 12 // bytes of codes of a row per call, so that x stays in the first-level cache
	// positions per call if x is float32, and minimum: shorter runs break the sequential reads of rows of common length
	vectorFloats   = 1 << 12
	vectorLine     = 64      // bytes of a cache line
	vectorAhead    = 1 << 13 // minimum distance in bytes of prefetching: the hardware prefetches too little. A greater one evicts x
	vectorLanes    = 16      // maximum lanes of a vector
	vectorMaxBytes = 7 << 20 // maximum bytes for rows of A: with longer rows, panels are faster
	vectorTileRows = 64      // rows of A that must fit in them, of more
)

// generic reports whether v is portable Go, which supports every operand.
func (v *vectorKernel) generic() bool { return v.single == nil && v.interleaved == nil }

// groupCodes returns the positions of a group.
func (v *vectorKernel) groupCodes() int {
	if v.interleaved != nil {
		return v.block
	}
	return vectorBlocks * min(v.block, 32)
}

// stepBytes returns the bytes of the codes of a step.
func (v *vectorKernel) stepBytes() int { return v.step * v.bits / 8 }

// scalesRead returns the bytes of the scales of a row that a kernel reads over a number of steps.
func (v *vectorKernel) scalesRead(steps int) int {
	if v.scale == nil {
		return 0
	}
	groups, each := ceilDiv(steps*v.step, v.groupCodes()), v.groupCodes()/v.block*v.scaleBytes()
	if v.interleaved != nil {
		each = vectorBlocks * v.scaleBytes() // of as many rows
	}
	return groups * each
}

// scaleBytes returns the bytes of a scale, 0 if the format has none.
func (v *vectorKernel) scaleBytes() int {
	if v.scale == nil {
		return 0
	}
	return v.scale.StoredBits() / 8
}

// stepsAtOnce returns the number of steps of a row per call of the kernel: those of whole groups.
func (v *vectorKernel) stepsAtOnce() int {
	groups := vectorFloats / v.groupCodes()
	if v.lanes == 0 {
		groups = max(groups, vectorBytes/(v.groupCodes()*v.bits/8))
	}
	return groups * v.groupCodes() / v.step
}

// words returns the number of 32-bit words that positions of a row of A take.
func (v *vectorKernel) words(positions int) int {
	switch {
	case v.lanes > 0:
		return positions
	case v.interleaved != nil && v.integers:
		return positions/4 + 2*positions/v.block
	}
	return positions / 2
}

// planVector is plan for kernels that read the codes of B.
func (k *kernel) planVector(p *plan) (why string) {
	v, a, b := k.vector, &p.a, &p.b
	f := b.t.Format
	perRow := f.Scale == format.F32 && f.Block.Cols == 0
	switch {
	case p.m == 0 || p.m > k.rows.most:
		return "a has no rows or too many"
	case v.tileRows(p.k) < min(p.m, vectorTileRows):
		return "K is too large"
	case k.panel == panelInt8:
		return p.planVectorInt8(v)
	case k.panel == panelF32:
		return p.planVectorF32(v)
	case f.Element.StoredBits() != v.bits || v.tables(f.Element) == nil:
		return "unsupported element format"
	case f.Scale != v.scale && !perRow, f.Scaled() && !perRow && f.Block.Cols != v.block, perRow && v.scale != format.E8M0:
		return "unsupported scales"
	case commonChunk(a.t.Format) != math.MaxInt:
		return "a has several FP32 scales per row"
	}
	if perRow {
		if why = b.fit(); why != "" {
			return why
		}
	}
	b.lo, b.hi = 1, byte(format.E8M0.MaxCode())
	return a.fit()
}

// tileRows returns the number of rows of A, of k elements, that are multiplied at once: with one that may pad the last pass,
// and one row of each operand in float32, they take vectorMaxBytes at most.
func (v *vectorKernel) tileRows(k int) int {
	const word = 4
	group := v.groupCodes()
	width := ceilDiv(k, group) * group
	return (vectorMaxBytes/word-2*width)/max(1, v.words(width)) - 1
}

// perRow reports whether an operand of a vector kernel has one scale per row, applied to the
// sums.
func (s *side) perRow() bool {
	return s.scales == perChunk && s.t.Format.Scale == format.F32 && s.t.Format.Block.Cols == 0
}

// A vectorJob is the state that the threads of a vector product share.
type vectorJob struct {
	sawNaN  atomic.Bool // an element of C may be NaN
	x       []uint32    // decoded rows of A, for all passes
	xStride int         // in words
	passes  []vectorPass
	scales  vectorScales
	spans   spans // of tasks
}

// A vectorPass multiplies batch rows of A, from row first of those of the job on.
type vectorPass struct{ first, batch int }

// taskRows returns the rows of B in a task: fewer than vectorRows if threads would otherwise end far
// apart. They are whole groups of an Interleaved.
func (j *job) taskRows() int {
	const perThread = 2 * parallel.PerThread // a task takes microseconds
	rows := vectorRows
	for j.threads > 1 && rows > interleavedRows && j.cols.to-j.cols.from < rows*perThread*j.threads {
		rows /= 2
	}
	return rows
}

// multiplyVector computes a product with a vector kernel. Every thread runs it.
func (w *worker) multiplyVector() {
	j, done := w.job, 0
	rows := j.taskRows()
	for i, ok := j.vector.spans.take(w.index); ok; i, ok = j.vector.spans.take(w.index) {
		l0 := j.cols.from + i*rows
		l1 := min(l0+rows, j.cols.to)
		w.vectorTask(l0, l1)
		w.finishVector(l0, l1)
		done++
	}
	j.finish(done, j.vectorTasks())
	if w.index == 0 {
		j.await(0)
	}
}

// vectorTasks returns the number of tasks of a vector product.
func (j *job) vectorTasks() int { return ceilDiv(j.cols.to-j.cols.from, j.taskRows()) }

// vectorTask sets w.edge to the products with rows l0…l1 of B. The stride from one row of A to
// the next is vectorRows.
func (w *worker) vectorTask(l0, l1 int) {
	s, v := &w.job.plan.b, w.job.plan.kernel.vector
	switch {
	case v.interleaved != nil:
		w.vectorInterleaved(l0, l1)
		return
	case v.generic():
		w.vectorGeneric(l0, l1)
		return
	}
	clear(w.edge)
	found := false
	for l := l0; l < l1; {
		end := l1
		if rows := s.t.Format.Block.Rows; rows > 1 { // rows that share their scales
			end = min(l1, (l/rows+1)*rows)
		}
		found = w.vectorRun(l, end, l-l0) || found
		l = end
	}
	ends := w.job.vector.scales.used > 0
	for l := l0; l < l1 && (found || ends); l++ {
		if found && !s.vectorTakes(l, v) || ends && !w.job.vector.scales.finiteAfter(l) {
			w.vectorReference(l, l-l0)
		}
	}
}

// vectorRun adds the products with rows l0…l1 of B to w.edge[at:]. Either each row has
// separate scales, or all share them. found reports whether the kernel met a code or scale
// that it does not support. The order of additions is the same for all rows.
func (w *worker) vectorRun(l0, l1, at int) (found bool) {
	p, v := &w.job.plan, w.job.plan.kernel.vector
	t := p.b.t
	rowBytes, n := t.RowBytes(), l1-l0
	codes := t.Codes[l0*rowBytes:]
	scales, stride := w.job.vector.scales.from(l0)
	steps := ceilDiv(p.k, v.step)
	inside := v.stepsInside(p.k, t.Format.Element)
	if inside > 0 {
		readable := rowsWithin(n, len(codes), rowBytes, inside*v.stepBytes())
		if need := v.scalesRead(inside); scales != nil && stride > 0 {
			readable = rowsWithin(readable, len(scales), stride, need)
		} else if scales != nil && need > len(scales) {
			scales = w.vectorPadded(scales, need)
		}
		if readable < n {
			readable &^= 1 // kernels for pairs of rows change the sum after that of a single row
		}
		if readable > 0 {
			found = w.vectorSteps(codes, scales, rowBytes, stride, 0, inside, readable, at)
		}
		if readable < n {
			found = w.vectorCopied(l0+readable, l1, 0, inside, at+readable) || found
		}
	}
	if inside < steps {
		found = w.vectorCopied(l0, l1, inside, steps, at) || found
	}
	return found
}

// stepsInside returns the number of steps of a row that kernels read in place: a partial one only if
// all codes are finite, so that their products with zeros are zeros.
func (v *vectorKernel) stepsInside(k int, e *format.Scalar) int {
	if allFinite(e) {
		return ceilDiv(k, v.step)
	}
	return k / v.step
}

// allFinite reports whether all codes of an element format are finite numbers.
func allFinite(e *format.Scalar) bool {
	return e.Integer || e.MaxCode() == 1<<(e.Bits()-1)-1
}

// rowsWithin returns the number of rows, at most n, of which the given bytes are within a slice of
// that length. Rows are stride bytes apart.
func rowsWithin(n, length, stride, bytes int) int {
	switch {
	case bytes > length:
		return 0
	case stride == 0:
		return n
	}
	return min(n, (length-bytes)/stride+1)
}

// vectorCopied adds the products with rows l0…l1 of B over steps from…to to w.edge[at:]. It copies
// their codes and scales to scratch memory, padded with zeros. Step from begins a
// group, or is the last step.
func (w *worker) vectorCopied(l0, l1, from, to, at int) (found bool) {
	p, v := &w.job.plan, w.job.plan.kernel.vector
	t := p.b.t
	rowBytes, first := t.RowBytes(), from*v.stepBytes()
	codeBytes, scaleBytes := (to-from)*v.stepBytes(), v.scalesRead(to-from)
	grow(&w.tail, (l1-l0)*(codeBytes+scaleBytes))
	codes, scales := w.tail[:(l1-l0)*codeBytes], w.tail[(l1-l0)*codeBytes:][:(l1-l0)*scaleBytes]
	clear(codes)
	fill(scales, v.padding())
	all, stride := w.job.vector.scales.from(l0)
	used := min(codeBytes, ceilDiv(p.k*v.bits, 8)-first) // without the padding of a partial block, which may be NaN
	blocks := ceilDiv(min(to*v.step, p.k), v.block) - from*v.step/v.block
	for l := range l1 - l0 {
		copy(codes[l*codeBytes:(l+1)*codeBytes], t.Codes[(l0+l)*rowBytes+first:][:used])
		if all != nil {
			copy(scales[l*scaleBytes:(l+1)*scaleBytes], all[l*stride+from*v.step/v.block*v.scaleBytes():][:blocks*v.scaleBytes()])
		}
	}
	if all == nil {
		scales, scaleBytes = nil, 0
	}
	return w.vectorSteps(codes, scales, codeBytes, scaleBytes, from, to-from, l1-l0, at)
}

// vectorSteps adds the products with n rows of B over m steps, from step first of A on, to
// w.edge[at:]. scales is nil if all scales are 1. If a row takes several calls of the kernel, each reads
// a part of all rows. For a single row of A, which a cache holds, they follow each other instead, so
// that B is read in order.
func (w *worker) vectorSteps(codes, scales []byte, stride, scaleStride, first, m, n, at int) (found bool) {
	v := w.job.plan.kernel.vector
	most, together := v.stepsAtOnce(), n
	if m > most && w.job.height() == 1 && v.lanes == 0 {
		together = 1
	}
	each, end := v.scalesRead(most), v.scalesRead(m%most)
	for l := 0; l < n; l += together {
		for c := 0; c < m; c += most {
			k, scaleBytes := most, each
			if m-c < most {
				k, scaleBytes = m-c, end
			}
			part, s := codes[l*stride+c*v.stepBytes():], vectorOnes[:]
			if scales != nil {
				s = scales[l*scaleStride+c/most*each:]
			}
			for _, pass := range w.job.vector.passes {
				dot, rows := v.single, 1
				if pass.batch > 1 && v.pairs != nil {
					dot, rows = v.pairs, 2
				}
				last := together / rows * rows
				if last > 0 {
					next, ahead := rows*stride-k*v.stepBytes(), vectorAhead
					if together > 1 && next >= vectorLine { // not the bytes after this part
						ahead = max(ahead, 4/rows*stride)
					}
					found = w.vectorPass(dot, pass, first+c, at+l, &vectorArgs{
						w: unsafe.Pointer(&part[0]), s: unsafe.Pointer(&s[0]), steps: k, rows: last / rows, ahead: ahead,
						wStride: stride, sStride: scaleStride, wNext: next, sNext: rows*scaleStride - scaleBytes,
					}) || found
				}
				if last < together { // one row of a pair: pass it twice, with stride 0
					found = w.vectorPass(dot, pass, first+c, at+l+last, &vectorArgs{
						w: unsafe.Pointer(&part[last*stride]), s: unsafe.Pointer(&s[last*scaleStride]), steps: k, rows: 1, ahead: vectorAhead,
					}) || found
				}
			}
		}
	}
	return found
}

// vectorPass calls dot for the rows of A of a pass, from step first on, with p for the rows of B, whose first
// products are at w.edge[at].
func (w *worker) vectorPass(dot vectorFunc, pass vectorPass, first, at int, p *vectorArgs) (found bool) {
	const word = 4
	j, v := w.job, w.job.plan.kernel.vector
	p.x = unsafe.Pointer(&j.vector.x[pass.first*j.vector.xStride+v.words(first*v.step)])
	p.y = unsafe.Pointer(&w.edge[pass.first*vectorRows+at])
	p.xStride, p.yStride, p.batch = word*j.vector.xStride, word*vectorRows, pass.batch
	p.sums, p.tables = unsafe.Pointer(&w.sums[0]), v.tables(j.plan.b.t.Format.Element)
	return dot(*p) != 0
}

// vectorTakes reports whether the kernel computes the product with row l. If not, vectorReference
// does. E8M0 scales below lo must be those of zeros, and none may be above hi or NaN. E4M3
// scales must be positive. Float32 kernels require elements without NaN.
func (s *side) vectorTakes(l int, v *vectorKernel) bool {
	if s.kernel.panel == panelF32 && !s.vectorNumbers(l) {
		return false
	}
	if s.t.Scales == nil {
		return true
	}
	_, cols := s.t.ScaleShape()
	first := s.scaleIndex(l, 0)
	for i, code := range s.t.Scales[first : first+cols] {
		switch {
		case v.scale == format.E4M3:
			if uint32(code) > format.E4M3.MaxCode() {
				return false
			}
		case code < s.lo:
			if !s.isZero(l, i*v.block, min((i+1)*v.block, s.t.StoredCols())) {
				return false
			}
		case code > s.hi:
			return false
		}
	}
	return true
}

// finishVector scales the products with rows l0…l1 of B and writes them to C.
func (w *worker) finishVector(l0, l1 int) {
	j := w.job
	p := &j.plan
	var scales []float32
	if p.b.perRow() {
		scales = w.rowScales(l0, l1)
	}
	for b := range j.height() {
		sa := p.alpha
		if p.a.perRow() {
			sa = float32(sa * math.Float32frombits(p.a.scaleWord(j.rows.from+b, 0)))
		}
		sums, c := w.edge[b*vectorRows:][:l1-l0], j.c.Row(b)[l0-j.cols.from:l1-j.cols.from]
		for i, s := range scales {
			sums[i] = float32(float32(sa*s) * sums[i])
		}
		isNaN := false
		for i, v := range sums {
			if scales == nil {
				v = float32(sa * v)
				sums[i] = v
			}
			if v != v {
				isNaN = true
			}
		}
		if isNaN {
			j.vector.sawNaN.Store(true)
		}
		if j.bias != nil {
			for i, x := range j.bias[l0:l1] {
				sums[i] += x
			}
		}
		if j.accumulate {
			for i, x := range c {
				sums[i] += x
			}
		}
		copy(c, sums)
	}
}
