package gemm

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
)

// A vectorKernel multiplies a few lines of A by B straight from B's codes, where
// packing B would take longer than multiplying by it: its time is that of reading
// B. A's lines are decoded beforehand, in the order of the kernel: to BF16, to float32,
// or to integers with their scales beside them where the elements of both operands are
// small integers.
//
//	y[b][l] += Σ over groups of blocks · Σ over blocks of scale[l] · Σ x[b][k]·w[l][k]
//
// Products within a block are VDPBF16PS's, VFMADD231PS's, or exact by VPDPBUSD; blocks
// are added in float32. Lines of B that end within a group are finished in a copy that
// is filled up with zeros.
type vectorKernel struct {
	block, bits int
	scale       *format.Scalar                        // of the blocks; lines with one FP32 scale go as blocks of scale 1; nil: there are none
	lanes       int                                   // of its vectors, where it multiplies float32
	batch       int                                   // lines of A at most: with more, packing B is faster
	least       int                                   // and at least, where BF16 products are no faster than float32 ones: with fewer, those of float32 are
	batchPacked int                                   // and where B was packed beforehand
	tables      func(e *format.Scalar) unsafe.Pointer // of kernels of float32 nil for elements that they do not take
	dots        []vectorDot                           // by batch, rising; more lines than the last has go in several passes; nil: it is plain Go
}

// A vectorDot is a kernel in assembly for batch lines of A and rows lines of B at
// a time.
type vectorDot struct {
	rows, batch int
	dot         func(w, s, x unsafe.Pointer, groups, pairs, wStride, sStride, wNext, sNext int, y unsafe.Pointer, xStride, yStride int, tables unsafe.Pointer) (found uint64)
}

const (
	vectorLines  = 64      // lines of B in a task
	vectorBlocks = 16      // in a group
	vectorBytes  = 1 << 12 // of codes of a line in one go, so that x stays in the first cache
	vectorFloats = 1 << 12 // positions in one go where x is float32: with fewer, usual lines are not read as they follow each other
	vectorRoom   = 7 << 20 // bytes for lines of A at most: with longer ones, panels take less
)

// groupCodes returns the positions of a group, groupScales the bytes of its scales.
func (v *vectorKernel) groupCodes() int { return vectorBlocks * min(v.block, 32) }

func (v *vectorKernel) groupScales() int { return v.groupCodes() / v.block * v.scaleBytes() }

// scaleBytes returns the bytes of a scale.
func (v *vectorKernel) scaleBytes() int {
	if v.scale == nil {
		return 0
	}
	return v.scale.StoredBits() / 8
}

// groupsAtOnce returns how many groups of a line are multiplied in one go.
func (v *vectorKernel) groupsAtOnce() int {
	if v.lanes > 0 {
		return vectorFloats / v.groupCodes()
	}
	return vectorBytes / (v.groupCodes() * v.bits / 8)
}

// words returns the words that so many positions of a line of A take.
func (v *vectorKernel) words(positions int) int {
	if v.lanes > 0 {
		return positions
	}
	return positions / 2
}

// planVector is plan for kernels that take B as it is.
func (k *kernel) planVector(p *plan) (why string) {
	v, a, b := k.vector, &p.a, &p.b
	f := b.t.Format
	perLine := f.Scale == format.F32 && f.Block.Cols == 0
	switch {
	case p.m == 0 || p.m > v.batch:
		return "a has no lines, or too many"
	case v.room(p.m, p.k) > vectorRoom:
		return "the lines are too long"
	case k.panel == panelInt8:
		return p.planVectorInt8(v)
	case k.panel == panelF32:
		return p.planVectorF32(v)
	case f.Element.StoredBits() != v.bits || f.Element.Integer || f.Element.Specials == format.UnsignedZero:
		return "the elements are not those of the kernel"
	case !perLine && (f.Scale != v.scale || f.Block.Cols != v.block):
		return "the scales are not those of the kernel"
	case perLine && v.scale != format.E8M0:
		return "the scales are not those of the kernel"
	case commonChunk(a.t.Format) != math.MaxInt:
		return "FP32 scales along the lines of a"
	}
	if perLine {
		if why = b.fit(); why != "" {
			return why
		}
	}
	b.lo, b.hi = 1, byte(format.E8M0.MaxCode())
	return a.fit()
}

// room returns the bytes that m lines of A take, and a line of each operand in
// float32 beside them: at most one line is added to fill up a pass.
func (v *vectorKernel) room(m, k int) int {
	const word = 4
	group := v.groupCodes()
	width := ceilDiv(k, group) * group
	return word * ((m+1)*v.words(width) + 2*width)
}

// planVectorInt8 is planVector of kernels that multiply integers. The scale of A is
// constant over a block of B then, and is multiplied by B's as kernels for panels do.
func (p *plan) planVectorInt8(v *vectorKernel) (why string) {
	f, g := p.b.t.Format, p.a.t.Format
	_, integersB := int8Forms[f.Element]
	_, integersA := int8Forms[g.Element]
	switch {
	case !integersA || !integersB || f.Element.StoredBits() != v.bits:
		return "the elements are not those of the kernel"
	case f.Scale != v.scale || f.Block.Cols != v.block || g.Block.Cols == 0 || g.Block.Cols%v.block != 0:
		return "the scales are not those of the kernel"
	case g.Scale == format.E8M0:
		p.a.scales, p.a.lo, p.a.hi = exponents, leastExponent, largestExponent
		p.b.lo, p.b.hi = leastExponent, largestExponent
		return p.a.checkExponents()
	case g.Scale == format.E4M3 && v.scale == format.E4M3:
		p.a.scales = perChunk
		return ""
	}
	return "the scales are not those of the kernel"
}

// perLine reports whether an operand of a vector kernel has its scales outside the
// sums: one for each line.
func (s *side) perLine() bool {
	return s.scales == perChunk && s.t.Format.Scale == format.F32 && s.t.Format.Block.Cols == 0
}

// A vectorJob is what the threads of a product by a vector kernel share.
type vectorJob struct {
	x       []uint32 // the lines of A, those of all passes
	xStride int      // in words
	passes  []vectorPass
}

// A vectorPass is some lines of A, from the first on, which go through B together.
// All passes read a part of B before the next part, so that it is in a cache for all
// but the first.
type vectorPass struct {
	vectorDot
	first int
}

// prepare decodes A.
func (j *job) prepare() {
	p, v := &j.plan, j.plan.kernel.vector
	lines := 0
	j.vector.passes = j.vector.passes[:0]
	if v.dots == nil {
		lines = p.m
	}
	for lines < p.m {
		pass := vectorPass{v.dots[0], lines}
		rest := p.m - lines
		for _, d := range v.dots[1:] {
			if d.batch <= rest || rest > 1 && d.batch == rest+1 { // one line too many takes less time than two passes
				pass.vectorDot = d
			}
		}
		lines += pass.batch
		j.vector.passes = append(j.vector.passes, pass)
	}
	group := v.groupCodes()
	width := ceilDiv(p.k, group) * group
	stride := v.words(width)
	j.vector.xStride = stride
	grow(&j.vector.x, lines*stride)
	for _, w := range j.workers[:j.threads] {
		grow(&w.edge, lines*vectorLines)
	}
	w := j.workers[0]
	grow(&w.scratch.values, width)
	values := w.scratch.values[:width]
	for b := range lines {
		clear(values)
		if b < p.m {
			p.a.elements(values[:p.k], b, 0)
			if p.a.scales == folded {
				p.a.fold(values[:p.k], b, 0)
			}
		}
		switch x := j.vector.x[b*stride : (b+1)*stride]; p.kernel.panel {
		case panelInt8:
			p.a.arrangeInt8(x, values, b, int8Forms[p.b.t.Format.Element].unit)
		case panelF32:
			v.arrangeF32(x, values)
		case panelBF16:
			v.arrange(x, values)
		}
	}
}

// arrange sets x to the BF16 values in the order in which the kernel has the
// codes of a chunk of 64 bytes: with 8 bits, of each 16 the first eight, then the
// others; with 4 bits, of each four the first, then the second, and so on.
func (v *vectorKernel) arrange(x []uint32, values []float32) {
	const words = 16 // in a vector
	n := 16 / v.bits // vectors of a chunk
	for c := 0; c < len(x); c += n * words {
		chunk := values[2*c : 2*(c+n*words)]
		for i := range n {
			out := x[c+i*words:][:words]
			for j := range out {
				from, next := j/4*8*n+i*8+j%4*2, 1
				if v.bits == 4 {
					from, next = j/4*8*n+j%4*8+i, 4
				}
				out[j] = math.Float32bits(chunk[from])>>16 | math.Float32bits(chunk[from+next])&0xffff0000
			}
		}
	}
}

// arrangeInt8 sets x to what kernels for integers have of line l, whose elements
// without their scales are values: for each 128 of them four vectors. The first two
// have of each 8 the even and the odd ones where codes of B take 4 bits, of each 32
// the first and the second 16 where they take more. In the third is what the sums of
// products with B start from, less its bias, in the fourth the scale of each dword
// times the units of the elements.
func (s *side) arrangeInt8(x []uint32, values []float32, l int, unitB float32) {
	const chunk, words = 128, 16
	unit := int8Forms[s.t.Format.Element].unit
	nibbles := s.kernel.vector.bits == 4
	for c := 0; c < len(values); c += chunk {
		out := x[c/2:][:chunk/2]
		for j := range words {
			var sum int32
			for i := range 2 {
				from, next := c+j/4*32+i*16+j%4*4, 1
				if nibbles {
					from, next = c+j*8+i, 2
				}
				var word uint32
				for b := range 4 {
					n := int32(values[from+b*next] / unit)
					sum += n
					word |= uint32(uint8(n)) << (8 * b)
				}
				out[i*words+j] = word
			}
			out[2*words+j] = uint32(-sum * s.other)
			scale := s.scaleWord(l, min(c+j*8, s.t.Width()-1)) // beyond the line, times zeros
			scale = math.Float32bits(math.Float32frombits(scale) * unit * unitB)
			if s.kernel.vector.scale == format.E8M0 { // it is an exponent, to be added
				scale -= math.Float32bits(1)
			}
			out[3*words+j] = scale
		}
	}
}

// multiplyVector is the product by a vector kernel, run by every thread: tasks
// are some lines of B.
func (w *worker) multiplyVector() {
	j := w.job
	tasks := ceilDiv(j.cols.to-j.cols.from, vectorLines)
	for i, ok := j.take(0, tasks); ok; i, ok = j.take(0, tasks) {
		l0 := j.cols.from + i*vectorLines
		l1 := min(l0+vectorLines, j.cols.to)
		w.vectorTask(l0, l1)
		w.finishVector(l0, l1)
		j.finish(tasks)
	}
}

// vectorTask sets w.edge to the products with lines l0…l1 of B, vectorLines from
// one line of A to the next.
func (w *worker) vectorTask(l0, l1 int) {
	s, v := &w.job.plan.b, w.job.plan.kernel.vector
	if v.dots == nil {
		w.vectorGeneric(l0, l1)
		return
	}
	clear(w.edge)
	found := false
	for l := l0; l < l1; {
		end := l1
		if rows := s.t.Format.Block.Rows; rows > 1 { // as far as they share their scales
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
			w.vectorPlain(l, l-l0)
		}
	}
}

// vectorRun adds the products with lines l0…l1 of B, each of which has scales of its
// own or all the same, to w.edge from at on.
func (w *worker) vectorRun(l0, l1, at int) (found bool) {
	p, v := &w.job.plan, w.job.plan.kernel.vector
	t := p.b.t
	bytes, scaleBytes := v.groupCodes()*v.bits/8, v.groupScales()
	lineBytes := t.LineBytes()
	groups := p.k / v.groupCodes()
	all, stride := p.b.vectorScales(l0)
	for g := 0; g < groups; {
		m := min(groups-g, v.groupsAtOnce())
		scales := vectorOnes[:]
		if all != nil {
			scales = all[g*scaleBytes:]
		}
		found = w.vectorLines(t.Codes[l0*lineBytes+g*bytes:], scales, lineBytes, stride, g, m, l1-l0, at) || found
		g += m
	}
	if rest := p.k - groups*v.groupCodes(); rest > 0 {
		const room = vectorBlocks * 4 // for the scales of a line
		grow(&w.tail, vectorLines*(bytes+room))
		codes, scales := w.tail[:vectorLines*bytes], w.tail[vectorLines*bytes:]
		clear(codes)
		var one byte // beyond the line, times zeros: a scale that is a number
		switch v.scale {
		case format.E8M0:
			one = byte(format.E8M0.Bias)
		case format.E4M3:
			one = byte(format.E4M3.Encode(1))
		}
		used, blocks := (rest*v.bits+7)/8, ceilDiv(rest, v.block)
		for l := range l1 - l0 {
			line := codes[l*bytes : (l+1)*bytes]
			copy(line[:used], t.Codes[(l0+l)*lineBytes+groups*bytes:(l0+l+1)*lineBytes])
			of := scales[l*room : (l+1)*room]
			for i := range of {
				of[i] = one
			}
			if all != nil {
				copy(of[:blocks*v.scaleBytes()], all[l*stride+groups*scaleBytes:])
			}
		}
		found = w.vectorLines(codes, scales, bytes, room, groups, 1, l1-l0, at) || found
	}
	return found
}

// vectorScales returns the bytes of the scales of B from line l on, and how far it is
// to those of the next line: 0 where lines share them. It returns nil where there are
// none, or one for each line.
func (s *side) vectorScales(l int) (scales []byte, stride int) {
	f := s.t.Format
	if !f.Scaled() || s.perLine() {
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

// vectorOnes is scales of one.
var vectorOnes = func() (ones [vectorBytes / 32]byte) {
	for i := range ones {
		ones[i] = byte(format.E8M0.Bias)
	}
	return ones
}()

// vectorLines runs the kernel over n lines and m groups from group g on, in every
// pass, for w.edge from at on.
func (w *worker) vectorLines(codes, scales []byte, stride, scaleStride, g, m, n, at int) (found bool) {
	v, xStride := w.job.plan.kernel.vector, w.job.vector.xStride
	bytes, scaleBytes := v.groupCodes()*v.bits/8, v.groupScales()
	tables := v.tables(w.job.plan.b.t.Format.Element)
	for _, d := range w.job.vector.passes {
		x, y := unsafe.Pointer(&w.job.vector.x[d.first*xStride+v.words(g*v.groupCodes())]), w.edge[d.first*vectorLines+at:]
		if n >= d.rows {
			found = d.dot(unsafe.Pointer(&codes[0]), unsafe.Pointer(&scales[0]), x, m, n/d.rows,
				stride, scaleStride, d.rows*stride-m*bytes, d.rows*scaleStride-m*scaleBytes,
				unsafe.Pointer(&y[0]), 4*xStride, 4*vectorLines, tables) != 0 || found
		}
		if last := n / d.rows * d.rows; last < n { // one line is left of two: it counts for both
			found = d.dot(unsafe.Pointer(&codes[last*stride]), unsafe.Pointer(&scales[last*scaleStride]), x, m, 1, 0, 0, 0, 0,
				unsafe.Pointer(&y[last]), 4*xStride, 4*vectorLines, tables) != 0 || found
		}
	}
	return found
}

// vectorTakes reports whether the kernel gives the product with line l: E8M0
// scales below those it takes, as that of 2⁻¹²⁷, are those of zeros, none is above
// them or NaN, E4M3 scales have no sign, and elements are not NaN where it has none.
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
			if !s.isZero(l, i*v.block, min((i+1)*v.block, s.t.Width())) {
				return false
			}
		case code > s.hi:
			return false
		}
	}
	return true
}

// finishVector writes lines l0…l1 of B to their columns of C.
func (w *worker) finishVector(l0, l1 int) {
	j := w.job
	p := &j.plan
	for b := range p.m {
		row := j.c.Row(b)
		sa := p.alpha
		if p.a.perLine() {
			sa = float32(sa * math.Float32frombits(p.a.scaleWord(b, 0)))
		}
		for l := l0; l < l1; l++ {
			s := sa
			if p.b.perLine() {
				s = float32(s * math.Float32frombits(p.b.scaleWord(l, 0)))
			}
			v := float32(s * w.edge[b*vectorLines+l-l0])
			c := &row[l-j.cols.from]
			if j.bias != nil {
				v += j.bias[l]
			}
			if j.accumulate {
				v += *c
			}
			*c = v
		}
	}
}
