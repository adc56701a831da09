package quant

import (
	"slices"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/tensor"
)

// factorExtent is the elements that each of a lineKernel's factors serves.
const factorExtent = 16

// A lineRun is a line kernel at work on the lines of one goroutine: quantizations
// that no fused kernel does at once, with stochastic rounding or with small blocks
// that extend over several lines.
type lineRun struct {
	*run
	kernel    *lineKernel
	scales    *fusedRun // what stores scales of whole lines, to nearest; nil where blocks extend over several
	constants lineConstants
	factorOf  []float32     // by scale code; nil where blocks extend over several lines
	blocks    []blockFactor // of the lines that share scales, where scales is nil
	factors   []float32
	maxima    []float32
	room      []float32
	random    lineWords
}

// newLineRun returns nil where no kernel serves the run.
func (r *run) newLineRun() *lineRun {
	f := r.q.Format
	nearest := *r.q
	nearest.Rounding = format.NearestEven
	if r.q.Rounding != format.NearestEven && r.q.Rounding != format.Stochastic || !nearest.signMagnitude() || f.PerTensor() || f.Block.Cols%factorExtent != 0 || r.x.cols() == 0 {
		return nil
	}
	i := slices.IndexFunc(lineKernels, func(k lineKernel) bool {
		return k.tier <= cpu.Best() && k.bits == f.Element.StoredBits() && k.random == (r.q.Rounding == format.Stochastic)
	})
	if i < 0 {
		return nil
	}
	w := &lineRun{run: r, kernel: &lineKernels[i], constants: newLineConstants(f.Element)}
	w.factors = make([]float32, ceilDiv(r.x.cols(), factorExtent)+lineUnit/factorExtent)
	if f.Block.Rows == 1 {
		toNearest := *r
		toNearest.q, toNearest.with.Scales, toNearest.stream = &nearest, nil, false
		if k := toNearest.fused(); k != nil && f.ByteScales() {
			w.scales = toNearest.newFusedRun(k)
			w.factorOf = make([]float32, 256)
			for code := range w.factorOf {
				w.factorOf[code] = r.factorOf(byte(code))
			}
		}
	}
	w.room = r.x.room()
	if w.q.Rounding == format.Stochastic {
		w.random.constants = w.with.Random.philoxConstants()
	}
	return w
}

// factorOf returns what elements under a scale are multiplied by, zero where they
// are not.
func (r *run) factorOf(scale byte) float32 {
	switch {
	case r.q.Format.Scale == format.E8M0 && scale != e8m0NaN:
		return r.q.exponentFactor(scale)
	case r.q.Format.Scale == format.E4M3 && uint32(scale) <= scaleFormat.MaxCode():
		return safeDivide(1, float32(scaleFormat.Decode(uint32(scale))*r.global.decode))
	}
	return 0
}

// lines quantizes lines [from, to), of which band share scales, and returns the
// bits of the amax it saw.
func (w *lineRun) lines(from, to, band int) (amax uint32) {
	w.random.n, w.random.to = 0, to
	for l0 := from; l0 < to; l0 += band {
		l1 := min(l0+band, to)
		a, ok := w.scaleLines(l0, l1, band)
		amax = max(amax, a)
		for l := l0; l < l1; l++ {
			if w.with.Scales != nil {
				w.with.Scales(l, w.t.lineScales(l))
			}
			x := w.x.row(l, w.room)
			if !ok || w.kernel.encode(w.t.line(l), x, w.randomBits(l), w.factors, &w.constants) >= exponentMask {
				w.plainLine(l, x)
			} else {
				written := (len(x)*w.q.Format.Element.StoredBits() + 7) / 8
				clear(w.t.line(l)[written:])
			}
		}
	}
	return amax
}

// scaleLines stores the scales of lines [l0, l1) and spreads their factors; false
// where the plain form must encode.
func (w *lineRun) scaleLines(l0, l1, band int) (amax uint32, ok bool) {
	n, each := w.t.scaleCols(), ceilDiv(w.t.extent(), factorExtent)
	spread := func(j int, f float32) {
		for i := j * each; i < min((j+1)*each, len(w.factors)); i++ {
			w.factors[i] = f
		}
		ok = ok && f > 0
	}
	ok = true
	if w.scales != nil {
		amax = w.scales.blocks(l0*n, w.x.bytes(l0, l1))
		for j, code := range w.t.Scales[l0*n : l1*n] {
			spread(j, w.factorOf[code])
		}
		return amax, ok
	}
	if w.known == nil {
		amax = w.scaleBands(l0, l1, l0/band)
	} else {
		w.blocks = append(w.blocks[:0], w.known[l0])
	}
	for j, f := range w.blocks {
		if !f.isFactor() {
			f.value = 0
		}
		spread(j, f.value)
	}
	return amax, ok
}

// scaleBands is scaleBand by maxima of positions, each of 16 of a block.
func (w *lineRun) scaleBands(l0, l1, row int) (amax uint32) {
	if w.blocks == nil {
		w.blocks = make([]blockFactor, w.t.scaleCols())
		w.maxima = make([]float32, w.x.cols())
	}
	clear(w.maxima)
	for l := l0; l < l1; l++ {
		w.kernel.maxima(w.maxima, w.x.row(l, w.room))
	}
	for j := range w.blocks {
		c0, c1 := w.blockCols(j)
		a := maxFloatBits(w.maxima[c0:c1])
		hasNaN := a > exponentMask
		if hasNaN {
			a, _ = w.blockAmax(l0, l1, j, w.room)
		}
		amax = max(amax, a)
		w.blocks[j] = w.scaleBlock(row*len(w.blocks)+j, a, hasNaN)
	}
	return amax
}

// plainLine encodes a line in the plain form.
func (w *lineRun) plainLine(l int, x []float32) {
	factors := w.blocks
	if w.scales != nil { // of which there are only the codes
		factors = make([]blockFactor, w.t.scaleCols())
		for j := range factors {
			c0, c1 := w.blockCols(j)
			a, hasNaN := amaxBits(x[c0:c1])
			factors[j] = w.scaleBlock(l*len(factors)+j, a, hasNaN)
		}
	}
	codes := make([]byte, w.t.storedWidth())
	w.encodeLine(codes, l, x, factors, make([]float32, len(codes)), w.newRandomLines())
	w.q.Format.Element.Join(w.t.line(l), codes)
}

// lineWords are the random bits of some lines, as randomLines has them, by kernels.
type lineWords struct {
	constants philoxConstants
	first, n  int // lines
	to        int // the last line that is asked for, and one
	bits      []uint32
	turned    []uint32
	room      []uint32
}

// randomElements is about how many random words of columns are drawn at a time.
const randomElements = 1 << 16

// columnsAtOnce returns how many lines of a columnwise tensor of so many elements
// get their random bits at a time: those of a row of the source come together.
func columnsAtOnce(width int) int { return max(1, randomElements/width/philoxUnit) * philoxUnit }

// randomBits returns the random bits of line l, nil where rounding needs none.
func (w *lineRun) randomBits(l int) []uint32 {
	if w.q.Rounding != format.Stochastic {
		return nil
	}
	cols, b := w.x.cols(), &w.random
	if w.t.Direction == Rowwise {
		return b.constants.bits(&b.bits, w.element(l, 0), cols)
	}
	if l < b.first || l >= b.first+b.n {
		b.first, b.n = l, min(columnsAtOnce(cols), b.to-l)
		grow(&b.bits, b.n*cols)
		grow(&b.turned, b.n*cols)
		for p := range cols {
			row := b.turned[p*b.n : (p+1)*b.n]
			if i := w.element(l, p); i%philoxWords == 0 && b.n%philoxUnit == 0 {
				philoxBlocks(row, i/philoxWords, &b.constants)
			} else {
				copy(row, b.constants.bits(&b.room, i, b.n))
			}
		}
		transpose(tensor.Of(b.n, cols, asFloats(b.bits[:cols*b.n])), tensor.Of(cols, b.n, asFloats(b.turned[:cols*b.n])))
	}
	return b.bits[(l-b.first)*cols:]
}

// asFloats returns the memory of x, which is only moved.
func asFloats(x []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// asBits returns the memory of x.
func asBits(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, n)
	}
}

// bits returns the random bits of n elements from first on, in room.
func (c *philoxConstants) bits(room *[]uint32, first uint64, n int) []uint32 {
	if n == 0 {
		return nil
	}
	skip := int(first % philoxWords)
	whole := ceilDiv(skip+n, philoxUnit) * philoxUnit
	grow(room, whole)
	philoxBlocks((*room)[:whole], first/philoxWords, c)
	return (*room)[skip : skip+n]
}

// philoxConstants are what random bits are computed with besides their counters.
type philoxConstants struct {
	keys         [philoxRounds][2]uint32
	step, tensor uint32
}

func (s *Stream) philoxConstants() (c philoxConstants) {
	k0, k1 := uint32(s.Seed), uint32(s.Seed>>32)
	for i := range c.keys {
		c.keys[i] = [2]uint32{k0, k1}
		k0, k1 = k0+philoxWeyl0, k1+philoxWeyl1
	}
	c.step, c.tensor = s.Step, s.key()
	return c
}

const (
	philoxWords = 4  // of a counter
	philoxUnit  = 32 // that a philox kernel makes at a time
)

// philoxBlocks sets dst, a multiple of philoxUnit words, to the words of the
// counters from first on.
func philoxBlocks(dst []uint32, first uint64, c *philoxConstants) {
	for _, k := range philoxKernels {
		if k.tier <= cpu.Best() {
			k.words(dst, first, c)
			return
		}
	}
	for i := 0; i < len(dst); i += philoxWords {
		block := first + uint64(i/philoxWords)
		w := philox([4]uint32{uint32(block), uint32(block >> 32), c.step, c.tensor}, c.keys[0][0], c.keys[0][1])
		copy(dst[i:], w[:])
	}
}
