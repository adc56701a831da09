package gemm

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
)

// A vectorKernel multiplies a few rows of A by B from B's codes, where packing B would take
// longer than the product: its time is that of reading B. The rows of A are decoded beforehand
// into the kernel's order: to BF16, to float32, or, if the elements of both operands are small
// integers, to integers with their scales.
//
//	y[b][l] += Σ over groups of blocks · Σ over blocks of scale[l] · Σ x[b][k]·w[l][k]
//
// Products within a block use VDPBF16PS or VFMADD231PS, or are exact with VPDPBUSD.
// Blocks are added in float32. A partial group at the end of a row is copied and padded
// with zeros.
//
// The rows of A are divided into passes of 1, 2 or 4. All passes read a part of B before any
// reads the next, so that it is in a cache for all but the first.
type vectorKernel struct {
	block, bits int
	scale       *format.Scalar                        // scale format of the blocks; E8M0 kernels also support rows with one FP32 scale; nil: unscaled
	lanes       int                                   // lanes of its vectors, of float32 kernels
	batch       int                                   // maximum rows of A: with more, packing B is faster
	minRows     int                                   // minimum rows of A where BF16 products are no faster than float32 ones
	batchPacked int                                   // maximum rows of A if B is already packed
	tables      func(e *format.Scalar) unsafe.Pointer // constants for an element format; float32 kernels return nil for unsupported ones

	single, pairs vectorFunc // for single rows of B, and for pairs of rows of B if a pass has several rows of A; nil: single supports all passes. No single: portable Go
	most          int        // maximum rows of A in a pass; 0: 4

	interleaved interleavedFunc // instead of single and pairs, for operands B of this form
	integers    bool            // of interleaved kernels: panel is panelInt8
}

// A vectorFunc adds to y the products of batch rows of A (1, 2, or 4), xStride bytes apart, with
// rows or pairs of rows of B, over the given number of groups. Rows of B are wStride bytes apart
// and their scales sStride; wNext and sNext lead from the end of the groups of a row (or pair) to
// the next. Products with rows of A are yStride bytes apart. sums is scratch memory. It reports
// codes or scales that it does not support.
type vectorFunc func(w, s, x unsafe.Pointer, groups, rows, wStride, sStride, wNext, sNext int, y unsafe.Pointer, xStride, yStride, batch int, sums, tables unsafe.Pointer) (found uint64)

const (
	vectorRows     = 64      // rows of B in a task
	vectorBlocks   = 16      // blocks in a group
	vectorBytes    = 1 << 12 // bytes of codes of a row per call, so that x stays in the first-level cache
	vectorFloats   = 1 << 12 // positions per call if x is float32: shorter runs break the sequential reads of rows of common length
	vectorLanes    = 16      // maximum lanes of a vector
	vectorMaxBytes = 7 << 20 // maximum bytes for rows of A: with longer rows, panels are faster
)

// groupCodes returns the positions of a group, groupScales the bytes of its scales.
func (v *vectorKernel) groupCodes() int {
	if v.interleaved != nil {
		return v.block
	}
	return vectorBlocks * min(v.block, 32)
}

func (v *vectorKernel) groupScales() int { return v.groupCodes() / v.block * v.scaleBytes() }

// scaleBytes returns the bytes of a scale, 0 if the format has none.
func (v *vectorKernel) scaleBytes() int {
	if v.scale == nil {
		return 0
	}
	return v.scale.StoredBits() / 8
}

// groupsAtOnce returns the number of groups of a row per call of the kernel.
func (v *vectorKernel) groupsAtOnce() int {
	if v.lanes > 0 {
		return vectorFloats / v.groupCodes()
	}
	return vectorBytes / (v.groupCodes() * v.bits / 8)
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
	case p.m == 0 || p.m > v.batch:
		return "a has no rows or too many"
	case v.workspace(p.m, p.k) > vectorMaxBytes:
		return "K is too large"
	case k.panel == panelInt8:
		return p.planVectorInt8(v)
	case k.panel == panelF32:
		return p.planVectorF32(v)
	case f.Element.StoredBits() != v.bits || !f.Element.HasNegativeZero():
		return "unsupported element format"
	case !perRow && (f.Scale != v.scale || f.Block.Cols != v.block):
		return "unsupported scales"
	case perRow && v.scale != format.E8M0:
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

// workspace returns the bytes that m rows of A take (one row may pad the last pass), plus one
// row of each operand in float32.
func (v *vectorKernel) workspace(m, k int) int {
	const word = 4
	group := v.groupCodes()
	width := ceilDiv(k, group) * group
	return word * ((m+1)*v.words(width) + 2*width)
}

// planVectorInt8 is planVector for int8 kernels. The scale of A is constant over a block of B;
// the kernel multiplies the two scales as the panel kernels do.
func (p *plan) planVectorInt8(v *vectorKernel) (why string) {
	f, g := p.b.t.Format, p.a.t.Format
	_, integersB := int8Forms[f.Element]
	_, integersA := int8Forms[g.Element]
	switch {
	case !integersA || !integersB || f.Element.StoredBits() != v.bits:
		return "unsupported element format"
	case f.Scale != v.scale || f.Block.Cols != v.block || g.Block.Cols == 0 || g.Block.Cols%v.block != 0:
		return "unsupported scales"
	case g.Scale == format.E8M0:
		p.a.scales, p.a.lo, p.a.hi = exponents, minExponent, maxExponent
		p.b.lo, p.b.hi = minExponent, maxExponent
		return p.a.checkExponents()
	case g.Scale == format.E4M3 && v.scale == format.E4M3:
		p.a.scales = perChunk
		return ""
	}
	return "unsupported scales"
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
}

// A vectorPass multiplies batch rows of A, from row first on.
type vectorPass struct{ first, batch int }

// multiplyVector computes a product with a vector kernel. Every thread runs it; a task is
// vectorRows rows of B.
func (w *worker) multiplyVector() {
	j := w.job
	tasks := ceilDiv(j.cols.to-j.cols.from, vectorRows)
	for i, ok := j.take(0, tasks); ok; i, ok = j.take(0, tasks) {
		l0 := j.cols.from + i*vectorRows
		l1 := min(l0+vectorRows, j.cols.to)
		w.vectorTask(l0, l1)
		w.finishVector(l0, l1)
		j.finish(tasks)
	}
}

// vectorTask sets w.edge to the products with rows l0…l1 of B. The stride from one row of A to
// the next is vectorRows.
func (w *worker) vectorTask(l0, l1 int) {
	s, v := &w.job.plan.b, w.job.plan.kernel.vector
	switch {
	case v.interleaved != nil:
		w.vectorInterleaved(l0, l1)
		return
	case v.single == nil:
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
	if !found {
		return
	}
	for l := l0; l < l1; l++ {
		if !s.vectorTakes(l, v) {
			w.vectorReference(l, l-l0)
		}
	}
}

// vectorInterleaved is vectorTask for an interleaved operand.
func (w *worker) vectorInterleaved(l0, l1 int) {
	const word = 4
	j, v, t := w.job, w.job.plan.kernel.vector, w.job.plan.b.t
	_, blocks := t.ScaleShape()
	codes, scales := t.Codes[l0*t.RowBytes():], t.Scales[l0*blocks:]
	for _, pass := range j.vector.passes {
		v.interleaved(unsafe.Pointer(&codes[0]), unsafe.Pointer(&scales[0]), unsafe.Pointer(&j.vector.x[pass.first*j.vector.xStride]), blocks, (l1-l0)/interleavedRows,
			unsafe.Pointer(&w.edge[pass.first*vectorRows]), word*j.vector.xStride, word*vectorRows, pass.batch, v.tables(t.Format.Element))
	}
}

// vectorRun adds the products with rows l0…l1 of B to w.edge[at:]. Either each row has
// separate scales, or all share them. found reports whether the kernel met a code or scale
// that it does not support.
func (w *worker) vectorRun(l0, l1, at int) (found bool) {
	p, v := &w.job.plan, w.job.plan.kernel.vector
	t := p.b.t
	bytes := v.groupCodes() * v.bits / 8
	rowBytes := t.RowBytes()
	groups := p.k / v.groupCodes()
	all, stride := p.b.vectorScales(l0)
	if groups > 0 {
		found = w.vectorGroups(t.Codes[l0*rowBytes:], all, rowBytes, stride, 0, groups, l1-l0, at)
	}
	if rest := p.k - groups*v.groupCodes(); rest > 0 {
		const maxScales = vectorBlocks * 4 // bytes for the scales of a row
		grow(&w.tail, vectorRows*(bytes+maxScales))
		codes, scales := w.tail[:vectorRows*bytes], w.tail[vectorRows*bytes:]
		clear(codes)
		var one byte // padding, multiplied by zeros: must not be NaN
		switch v.scale {
		case format.E8M0:
			one = byte(format.E8M0.Bias)
		case format.E4M3:
			one = byte(format.E4M3.Encode(1))
		}
		used, blocks := (rest*v.bits+7)/8, ceilDiv(rest, v.block)
		for l := range l1 - l0 {
			row := codes[l*bytes : (l+1)*bytes]
			copy(row[:used], t.Codes[(l0+l)*rowBytes+groups*bytes:(l0+l+1)*rowBytes])
			of := scales[l*maxScales : (l+1)*maxScales]
			for i := range of {
				of[i] = one
			}
			if all != nil {
				copy(of[:blocks*v.scaleBytes()], all[l*stride+groups*v.groupScales():])
			}
		}
		found = w.vectorGroups(codes, scales, bytes, maxScales, groups, 1, l1-l0, at) || found
	}
	return found
}

// vectorScales returns the bytes of the scales of B from row l on, and the stride to those of
// the next row: 0 if rows share them. It returns nil if B has no scales or one per row.
func (s *side) vectorScales(l int) (scales []byte, stride int) {
	f := s.t.Format
	if !f.Scaled() || s.perRow() {
		return nil, 0
	}
	scales = s.t.Scales
	if x := s.t.Scales32; x != nil {
		scales = memory.Bytes(x)
	}
	_, cols := s.t.ScaleShape()
	bytes := s.kernel.vector.scaleBytes()
	if f.Block.Rows == 1 {
		stride = cols * bytes
	}
	return scales[s.scaleIndex(l, 0)*bytes:], stride
}

// vectorOnes holds E8M0 scales of 1.
var vectorOnes = func() (ones [vectorBytes / 32]byte) {
	for i := range ones {
		ones[i] = byte(format.E8M0.Bias)
	}
	return ones
}()

// vectorGroups adds the products with n rows of B over m groups, from group g of A on, to
// w.edge[at:]. scales is nil if all scales are 1.
func (w *worker) vectorGroups(codes, scales []byte, stride, scaleStride, g, m, n, at int) (found bool) {
	v := w.job.plan.kernel.vector
	bytes, scaleBytes := v.groupCodes()*v.bits/8, v.groupScales()
	for c := 0; c < m; {
		k := min(m-c, v.groupsAtOnce())
		s := vectorOnes[:]
		if scales != nil {
			s = scales[c*scaleBytes:]
		}
		for _, pass := range w.job.vector.passes {
			dot, rows := v.single, 1
			if pass.batch > 1 && v.pairs != nil {
				dot, rows = v.pairs, 2
			}
			if n >= rows {
				found = w.vectorPass(dot, pass, codes[c*bytes:], s, g+c, k, n/rows, stride, scaleStride, rows*stride-k*bytes, rows*scaleStride-k*scaleBytes, at) || found
			}
			if last := n / rows * rows; last < n { // one row of a pair: pass it twice, with stride 0
				found = w.vectorPass(dot, pass, codes[c*bytes+last*stride:], s[last*scaleStride:], g+c, k, 1, 0, 0, 0, 0, at+last) || found
			}
		}
		c += k
	}
	return found
}

// vectorPass calls dot.
func (w *worker) vectorPass(dot vectorFunc, pass vectorPass, codes, scales []byte, g, groups, rows, wStride, sStride, wNext, sNext, at int) (found bool) {
	const word = 4
	j, v := w.job, w.job.plan.kernel.vector
	x, y := j.vector.x[pass.first*j.vector.xStride+v.words(g*v.groupCodes()):], w.edge[pass.first*vectorRows+at:]
	return dot(unsafe.Pointer(&codes[0]), unsafe.Pointer(&scales[0]), unsafe.Pointer(&x[0]), groups, rows, wStride, sStride, wNext, sNext,
		unsafe.Pointer(&y[0]), word*j.vector.xStride, word*vectorRows, pass.batch, unsafe.Pointer(&w.sums[0]), v.tables(j.plan.b.t.Format.Element)) != 0
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
	for b := range p.m {
		row := j.c.Row(b)
		sa := p.alpha
		if p.a.perRow() {
			sa = float32(sa * math.Float32frombits(p.a.scaleWord(b, 0)))
		}
		sums, c := w.edge[b*vectorRows:][:l1-l0], row[l0-j.cols.from:][:l1-l0]
		if j.bias == nil && !j.accumulate && !p.b.perRow() {
			isNaN := false
			for i, sum := range sums {
				v := float32(sa * sum)
				c[i] = v
				isNaN = isNaN || v != v
			}
			if isNaN {
				j.vector.sawNaN.Store(true)
			}
			continue
		}
		j.vector.sawNaN.Store(true) // or perhaps not
		for l := l0; l < l1; l++ {
			s := sa
			if p.b.perRow() {
				s = float32(s * math.Float32frombits(p.b.scaleWord(l, 0)))
			}
			v := float32(s * sums[l-l0])
			if j.bias != nil {
				v += j.bias[l]
			}
			if j.accumulate {
				v += c[l-l0]
			}
			c[l-l0] = v
		}
	}
}
