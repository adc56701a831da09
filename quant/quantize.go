package quant

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// quantize is both directions: x has the lines of the result.
func (q Quantizer) quantize(x source, d Direction, with With) (*Tensor, error) {
	if err := x.validate(); err != nil {
		return nil, err
	}
	r, err := q.begin(x, d, with)
	if err != nil {
		return nil, err
	}
	r.quantize()
	return r.t, nil
}

// begin is newRun of what is checked first.
func (q *Quantizer) begin(x source, d Direction, with With) (*run, error) {
	if err := q.checkRun(x, d, with); err != nil {
		return nil, err
	}
	return q.newRun(x, d, with), nil
}

// checkRun reports what keeps q from quantizing the lines x.
func (q *Quantizer) checkRun(x source, d Direction, with With) error {
	if err := q.check(with); err != nil {
		return err
	}
	if q.Hadamard && x.cols()%hadamardSize != 0 {
		return fmt.Errorf("quantizer of %s: the Hadamard transform takes a multiple of %d elements along the blocks, not %d", q.Format, hadamardSize, x.cols())
	}
	return with.checkInto(x, q.Format, d)
}

// quantize fills the tensor.
func (r *run) quantize() {
	if r.x.columns && r.q.tileable() {
		quantizeTiles(nil, r)
		return
	}
	if r.x.columns || r.x.transform {
		lines := r.x.prepared(r.with.Threads)
		defer lines.giveBack()
		r.x = denseSource(lines.Dense)
	}
	band, rows := r.band(), r.x.rows()
	var seen atomic.Uint32
	parallel.For(ceilDiv(rows, band), grainElements/max(1, r.x.cols())/band, r.with.Threads, func(from, to int) {
		atomicMax(&seen, r.newBands(band)(from*band, min(to*band, rows)))
	})
	r.saw(&seen)
}

// newRun returns a quantization of the lines x, which are yet to be transformed, with the
// scales that are known before: those of the whole tensor.
func (q *Quantizer) newRun(x source, d Direction, with With) *run {
	x.transform = q.Hadamard
	rows, cols := x.shape()
	t := with.Into
	if t == nil {
		t = newTensor(q.Format, d, rows, cols)
	}
	r := &run{q: q, t: t, x: x, narrow: x.isRaw, with: with, cols: cols, stream: rows*cols*x.elementBytes() >= streamBytes}
	if q.Format.Global && with.Inverse != nil {
		r.global = givenGlobal(*with.Inverse) // before t.Amax and t.Global are set, one of which it may be
	}
	if q.Format.NeedsAmax() {
		if with.Amax != nil {
			t.Amax = *with.Amax
		} else {
			t.Amax = x.amax(with.Threads)
		}
	}
	t.Global = 1 // when what With points to, perhaps in t, was read
	if q.Format.Global && with.Inverse == nil {
		r.global = arithmetics[q.Arithmetic].global(t.Amax, q.Format.Element.Max(), q.top())
	}
	if q.Format.Global {
		t.Global = r.global.decode
	}
	if q.Format.PerTensor() && rows > 0 && cols > 0 {
		r.whole = r.scaleWhole()
	}
	return r
}

// saw stores the amax that was seen, where none had to be known before.
func (r *run) saw(amax *atomic.Uint32) {
	if !r.q.Format.NeedsAmax() {
		r.t.Amax = math.Float32frombits(amax.Load())
	}
}

// checkInto reports what keeps a tensor of x from being filled, where one is given.
func (w With) checkInto(x source, f Format, d Direction) error {
	t := w.Into
	if t == nil {
		return nil
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("With.Into: %w", err)
	}
	if rows, cols := x.shape(); !t.Format.same(f) || t.Direction != d || t.Rows() != rows || t.Cols() != cols {
		return fmt.Errorf("a %s %s tensor of %d×%d does not go into a %s %s one of %d×%d",
			d, f, rows, cols, t.Direction, t.Format, t.Rows(), t.Cols())
	}
	return t.checkApart(x.region())
}

// grainElements is the least work handed to a goroutine at a time.
const grainElements = 1 << 14

// streamBytes is the least source whose codes are written past the caches: these
// do not keep both until somebody asks for the codes.
const streamBytes = 4 << 20

// endStream is called by the last of those who wrote past the caches.
func (r *run) endStream() {
	if r.stream {
		fence()
	}
}

// run is one quantization: what its bands share.
type run struct {
	q      *Quantizer
	t      *Tensor
	x      source
	narrow bool // the source is BF16, whatever x has become
	with   With
	global global
	whole  blockFactor   // of a format with one scale per tensor
	known  []blockFactor // of lines, where each has one that was found before
	stream bool          // codes are written past the caches

	of             *run       // the copy that this is a piece of, or nil
	memory         *pieceRoom // of a piece
	line, position int        // of the copy, where the piece begins
	cols           int        // of the matrix
}

// A blockFactor is what the elements of a block are encoded with.
type blockFactor struct {
	factor
	poison bool // every element is NaN
}

// apply sets dst to what the elements of x are before rounding.
func (f blockFactor) apply(dst, x []float32) {
	dst = dst[:len(x)]
	switch {
	case f.poison:
		for i := range dst {
			dst[i] = float32(math.NaN())
		}
	case f.divide || !f.isPlain():
		for i, v := range x {
			dst[i] = f.factor.apply(v)
		}
	default:
		for i, v := range x {
			dst[i] = v * f.value
		}
	}
}

// band returns how many lines share their scales, or may: with one scale for
// the tensor, it is known beforehand.
func (r *run) band() int {
	switch {
	case r.q.Format.PerTensor():
		return 1
	case r.q.Format.Block.Rows == 0:
		return max(1, r.x.rows())
	}
	return r.q.Format.Block.Rows
}

// newBands returns what quantizes lines [from, to), band lines sharing a scale, and
// returns the bits of the amax it saw.
func (r *run) newBands(band int) func(from, to int) (amax uint32) {
	if !r.q.Format.Scaled() {
		return r.castLines
	}
	search := r.newSearcher()
	if search == nil {
		if kernel := r.fused(); kernel != nil {
			return r.newFusedRun(kernel).lines
		}
		if kernel := r.rowsKernel(); kernel != nil && r.x.cols() >= rowsUnit {
			switch extent := r.q.Format.Block; {
			case r.of != nil && extent.Cols == 0:
				return factoredRun{r.newRowsRun(kernel)}.lines
			case r.t.scaleCols() == 1 && extent.Rows <= 1 || r.q.Format.PerTensor():
				return r.newRowsRun(kernel).lines
			case band > 1 && extent.Cols%rowsUnit == 0 && extent.Cols > 0 && r.q.Format.Scale == format.F32:
				w := r.newRowsRun(kernel)
				return func(from, to int) uint32 { return w.bands(from, to, band) }
			}
		}
		if w := r.newLineRun(); w != nil && (r.q.Rounding == format.Stochastic || band > 1) {
			return func(from, to int) uint32 { return w.lines(from, to, band) }
		}
	}
	return func(from, to int) uint32 { return r.plainBands(search, from, to, band) }
}

// A plainRoom is memory that plainBands borrows, for a line or a band of them.
type plainRoom struct {
	codes          []byte
	scaled, values []float32
	amaxes         []uint32
	factors        []blockFactor
	encoder        lineEncoder
}

var plainRooms = sync.Pool{New: func() any { return new(plainRoom) }}

// plainBands is lines [from, to) in the plain form, or block by block.
func (r *run) plainBands(search *searcher, from, to, band int) (amax uint32) {
	borrowed := plainRooms.Get().(*plainRoom)
	defer plainRooms.Put(borrowed)
	width, blocks := r.t.storedWidth(), r.t.scaleCols()
	grow(&borrowed.codes, width)
	grow(&borrowed.scaled, width)
	grow(&borrowed.amaxes, blocks)
	grow(&borrowed.factors, blocks)
	codes, scaled, room := borrowed.codes[:width], borrowed.scaled, r.x.roomIn(&borrowed.values)
	amaxes, factors := borrowed.amaxes[:blocks], borrowed.factors[:blocks]
	encoder, random := r.lineEncoder(&borrowed.encoder), r.newRandomLines()
	whole := r.q.Format.Element.StoredBits() == 8 // codes need no joining
	for l0 := from; l0 < to; l0 += band {
		l1 := min(l0+band, to)
		if f, ok := r.lineFactor(l0); ok {
			for j := range factors {
				factors[j] = f
			}
		} else {
			amax = max(amax, r.scaleBand(l0, l1, l0/band, amaxes, factors, room))
		}
		if search != nil {
			search.choose(l0, l1, l0/band, amaxes, factors, room)
		}
		for l := l0; l < l1; l++ {
			if r.with.Scales != nil {
				r.with.Scales(l, r.t.lineScales(l))
			}
			line := codes
			if whole {
				line = r.t.line(l)
			}
			x := r.x.row(l, room)
			if encoder.encode(line, x, factors) {
				clear(line[len(x):])
			} else {
				r.encodeLine(line, l, x, factors, scaled, random)
			}
			if !whole {
				r.q.Format.Element.Join(r.t.line(l), line)
			}
		}
	}
	return amax
}

// scaleBand stores the scales of lines [l0, l1), in the given row of scales, and
// fills in the factors. It returns the bits of the largest amax.
func (r *run) scaleBand(l0, l1, row int, amaxes []uint32, factors []blockFactor, room []float32) (amax uint32) {
	clear(amaxes)
	for l := l0; l < l1; l++ {
		raiseAmaxes(amaxes, r.x.row(l, room), r.t.extent())
	}
	for j, a := range amaxes {
		hasNaN := a > exponentMask
		if hasNaN {
			a, _ = r.blockAmax(l0, l1, j, room)
		}
		amax = max(amax, a)
		factors[j] = r.scaleBlock(row*len(factors)+j, a, hasNaN)
	}
	return amax
}

// blockCols returns the columns [from, to) of the line that block j covers.
func (r *run) blockCols(j int) (from, to int) {
	extent := r.t.extent()
	return j * extent, min((j+1)*extent, r.x.cols())
}

// blockAmax returns the bits of the largest magnitude of a block, NaN aside, and
// whether there is NaN.
func (r *run) blockAmax(l0, l1, j int, room []float32) (amax uint32, hasNaN bool) {
	c0, c1 := r.blockCols(j)
	for l := l0; l < l1; l++ {
		a, nan := amaxBits(r.x.elements(l, c0, c1, room))
		amax, hasNaN = max(amax, a), hasNaN || nan
	}
	return amax, hasNaN
}

// A blockScale is the scale of a block.
type blockScale struct {
	code        byte    // as it is stored: E8M0 and E4M3
	value       float32 // decode scale, times that of the tensor
	blockFactor         // what elements are encoded with
}

// blockScale returns the scale of a block of the given amax, NaN aside.
func (q *Quantizer) blockScale(amax float32, hasNaN bool, g global) blockScale {
	element, bits := q.Format.Element, math.Float32bits(amax)
	poison := hasNaN && q.NonFinite != Tolerate || bits == exponentMask && q.NonFinite == Poison
	switch q.Format.Scale {
	case format.E8M0:
		if poison {
			s := q.byteScale(e8m0NaN, g)
			if q.NonFinite == PoisonZero {
				s.blockFactor = blockFactor{factor: factor{value: float32(math.Inf(1)), divide: true}}
			}
			return s
		}
		return q.byteScale(q.exponentCode(bits), g)
	case format.E4M3:
		s := q.byteScale(arithmetics[q.Arithmetic].block(amax, element.Max(), g), g)
		if poison {
			s.code, s.poison = byte(scaleFormat.EncodeWith(float32(math.NaN()), format.Conversion{}, 0)), true
		}
		return s
	}
	decode, f := arithmetics[q.Arithmetic].fp32(amax, element.Max(), q.PowerOfTwo)
	if poison {
		decode = float32(math.NaN())
	}
	return blockScale{value: decode, blockFactor: blockFactor{f, poison}}
}

// byteScale returns the scale of an E8M0 or E4M3 code.
func (q *Quantizer) byteScale(code byte, g global) blockScale {
	if q.Format.Scale == format.E8M0 {
		exponent := int(code) - format.E8M0.Bias
		return blockScale{code, exp2(exponent), blockFactor{factor{value: q.exponentFactor(code)}, code == e8m0NaN}}
	}
	value := float32(scaleFormat.Decode(uint32(code)) * g.decode)
	return blockScale{code, value, blockFactor{factor: arithmetics[q.Arithmetic].element(code, g)}}
}

// scaleBlock stores the scale of block i and returns how its elements are encoded.
func (r *run) scaleBlock(i int, amax uint32, hasNaN bool) blockFactor {
	s := r.q.blockScale(math.Float32frombits(amax), hasNaN, r.global)
	if r.t.Scales32 != nil {
		r.t.Scales32[i] = s.value
	} else {
		r.t.Scales[i] = s.code
	}
	return s.blockFactor
}

// scaleWhole stores the one scale of the tensor.
func (r *run) scaleWhole() blockFactor {
	if r.with.Inverse != nil {
		inverse := *r.with.Inverse // which may be in the tensor
		r.t.Scales32[0] = 1 / inverse
		return blockFactor{factor: factor{value: inverse}}
	}
	hasNaN := r.q.NonFinite != Tolerate && (r.with.NaN || r.x.hasNaN())
	return r.q.typed(r.scaleBlock(0, math.Float32bits(r.t.Amax), hasNaN), r.narrow)
}

// typed returns the factor of a whole tensor for a source that is BF16 or not.
func (q *Quantizer) typed(f blockFactor, narrow bool) blockFactor {
	f.bf16 = f.bf16 || narrow && arithmetics[q.Arithmetic].typed
	return f
}

// encodeLine sets codes to those of line l, and to zero past its end. scaled is
// room for the widest block; random is nil where nothing is drawn.
func (r *run) encodeLine(codes []byte, l int, line []float32, factors []blockFactor, scaled []float32, random *randomLines) {
	var words []uint32
	if random != nil {
		words = random.line(l)
	}
	for j, f := range factors {
		c0, c1 := r.blockCols(j)
		if random != nil {
			r.encodeStochastic(codes[c0:c1], line[c0:c1], f, scaled, words[c0:c1])
		} else {
			r.encodePlain(codes[c0:c1], line[c0:c1], f, scaled)
		}
	}
	clear(codes[len(line):])
}

// encodePlain sets codes to those of a block.
func (r *run) encodePlain(codes []byte, block []float32, f blockFactor, scaled []float32) {
	y := scaled[:len(block)]
	f.apply(y, block)
	r.q.Format.Element.EncodeSliceWith(codes, y, r.q.conversion())
	r.q.dropNegativeZeros(codes, y)
}

// encodeStochastic is encodePlain with a random word for each element.
func (r *run) encodeStochastic(codes []byte, block []float32, f blockFactor, scaled []float32, random []uint32) {
	y := scaled[:len(block)]
	f.apply(y, block)
	r.q.Format.Element.EncodeSliceStochastic(codes, y, random, r.q.conversion())
	r.q.dropNegativeZeros(codes, y)
}

func (q *Quantizer) conversion() format.Conversion {
	return format.Conversion{Rounding: q.Rounding, NaN: q.ElementNaN}
}

// dropNegativeZeros replaces the codes of -0 that q does not keep. scaled are the
// elements over their scale, of which some may have become -0 before they are rounded.
func (q *Quantizer) dropNegativeZeros(codes []byte, scaled []float32) {
	if q.NegativeZero == KeepNegativeZero {
		return
	}
	for i, c := range codes {
		if q.Format.Element.Decode(uint32(c)) == 0 && (scaled[i] == 0 || q.NegativeZero == DropNegativeZero) {
			codes[i] = 0
		}
	}
}

// element returns the index of an element in the tensor, rows first, whatever
// the direction.
func (r *run) element(line, position int) uint64 {
	line, position = line+r.line, position+r.position
	if r.t.Direction == Columnwise {
		line, position = position, line
	}
	return uint64(r.with.FirstRow+line)*uint64(r.cols) + uint64(position)
}

// castLines fills lines [from, to) of a tensor whose format has no scale, and returns
// the bits of the amax it saw.
func (r *run) castLines(from, to int) (amax uint32) {
	room := r.x.room()
	for l := from; l < to; l++ {
		dst, line := r.t.line(l), r.x.row(l, room)
		if err := tensor.ToBytes(dst, line, r.q.Format.Element); err != nil {
			panic(err) // Validate admits only formats that ToBytes takes
		}
		a, _ := amaxBits(line)
		amax = max(amax, a)
	}
	return amax
}

// amaxBits returns the bits of the largest magnitude of x, NaN aside. Bits of
// non-negative floats are ordered as the floats are.
func amaxBits(x []float32) (amax uint32, hasNaN bool) {
	if amax = maxBits(x); amax <= exponentMask {
		return amax, false
	}
	amax = 0
	for _, v := range x {
		if b := math.Float32bits(v) & absMask; b <= exponentMask {
			amax = max(amax, b)
		}
	}
	return amax, true
}

func atomicMax(m *atomic.Uint32, v uint32) {
	for {
		old := m.Load()
		if old >= v || m.CompareAndSwap(old, v) {
			return
		}
	}
}
