package quant

import (
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// randomWords draws the random words of the elements of a copy, those that Stream.At gives
// them, for several stored rows at a time: in a columnwise copy the words of adjacent rows
// come from one call of the generator.
type randomWords struct {
	of                     *output
	row, rows, pos, n      int // that are drawn
	drawn, transposed, one []uint32
}

// drawnElements is about how many random words of a columnwise copy are drawn at a time.
const drawnElements = 1 << 16

// words returns the words of n elements of a stored row, which are valid until the next
// call; nil where rounding needs none.
func (r *randomWords) words(o *output, row, pos, n int) []uint32 {
	if o.q.Rounding != format.Stochastic || n == 0 {
		return nil
	}
	if o.t.Direction == Rowwise {
		if o.with.Columns != nil {
			words := grow(&r.transposed, n)
			r.drawRuns(words, o, row, pos)
			return words
		}
		return o.random.bits(&r.drawn, o.element(row, pos), n)
	}
	if r.of != o || row < r.row || r.row+r.rows <= row || pos < r.pos || r.pos+r.n < pos+n {
		r.of, r.row, r.pos, r.n = o, row, pos, n
		r.rows = min(max(1, drawnElements/n/philoxUnit)*philoxUnit, o.t.StoredRows()-row)
		r.draw()
	}
	at := (row-r.row)*r.n + pos - r.pos
	return r.drawn[at : at+n]
}

// draw draws the words of rows of a columnwise copy.
func (r *randomWords) draw() {
	c := &r.of.random
	drawn, transposed := grow(&r.drawn, r.n*r.rows), grow(&r.transposed, r.n*r.rows)
	for p := range r.n {
		row := transposed[p*r.rows : (p+1)*r.rows]
		if r.of.with.Columns != nil {
			r.drawRuns(row, r.of, r.pos+p, r.row)
		} else if i := r.of.element(r.row, r.pos+p); i%philoxWords == 0 && r.rows%philoxUnit == 0 {
			philoxBlocks(row, i/philoxWords, c)
		} else {
			copy(row, c.bits(&r.one, i, r.rows))
		}
	}
	transpose(denseOf(r.rows, r.n, asFloats(drawn)), denseSource(denseOf(r.n, r.rows, asFloats(transposed))))
}

// drawRuns sets words to those of a row of the matrix from a column on, where With.Columns
// has the columns.
func (r *randomWords) drawRuns(words []uint32, o *output, row, col int) {
	for at := 0; at < len(words); {
		first, n := o.with.Columns.run(col + at)
		n = min(n, len(words)-at)
		i := uint64(o.with.FirstRow+row)*uint64(o.with.Columns.Of) + uint64(first)
		copy(words[at:], o.random.bits(&r.one, i, n))
		at += n
	}
}

// asFloats returns the memory of x, which is only moved.
func asFloats(x []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// bits returns the random words of n elements from first on, in scratch.
func (c *philoxConstants) bits(scratch *[]uint32, first uint64, n int) []uint32 {
	if n == 0 {
		return nil
	}
	skip := int(first % philoxWords)
	words := grow(scratch, ceilDiv(skip+n, philoxUnit)*philoxUnit)
	philoxBlocks(words, first/philoxWords, c)
	return words[skip : skip+n]
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
// counters from one on.
func philoxBlocks(dst []uint32, counter uint64, c *philoxConstants) {
	if words, ok := find(philoxKernels, variant{}); ok {
		words(dst, counter, c)
		return
	}
	for i := 0; i < len(dst); i += philoxWords {
		block := counter + uint64(i/philoxWords)
		w := philox([4]uint32{uint32(block), uint32(block >> 32), c.step, c.tensor}, c.keys[0][0], c.keys[0][1])
		copy(dst[i:], w[:])
	}
}
