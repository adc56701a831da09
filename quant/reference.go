package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// Reference quantizes x as Rowwise or Columnwise does, to the same bits, one
// element after another. It is the specification of this package: every kernel
// and every fast path is tested against it.
//
//	load      read x by rows, or transpose it for Columnwise; apply the Hadamard transform if asked for
//	amax      the largest magnitude of the tensor, if a scale depends on it, and of each block
//	scale     amax → scale code, by the scale rule (E8M0) or the arithmetic (E4M3, FP32)
//	encode    element × (1/scale), rounded to the element format
//
// With.Into, With.Scales and With.Threads have no effect. Errors are those of Rowwise.
func (q Quantizer) Reference(x tensor.Dense, d Direction, with With) (*Tensor, error) {
	return q.reference(x, false, d, with)
}

// ReferenceBF16 is Reference of a matrix in BF16. It differs from Reference of the same
// values where the arithmetic rounds to the dtype of the source.
func (q Quantizer) ReferenceBF16(x tensor.BF16, d Direction, with With) (*Tensor, error) {
	if err := x.Validate(); err != nil {
		return nil, err
	}
	wide := tensor.New(x.Rows, x.Cols)
	for i := range x.Rows {
		widen(wide.Row(i), x.Row(i))
	}
	return q.reference(wide, true, d, with)
}

// reference is Reference, of a source that was BF16 where narrow is set.
func (q Quantizer) reference(x tensor.Dense, narrow bool, d Direction, with With) (*Tensor, error) {
	with.Into, with.Scales = nil, nil
	rows, err := q.load(x, d, with)
	if err != nil {
		return nil, err
	}
	t := newTensor(q.Format, d, x.Rows, x.Cols)
	r := reference{q: &q, t: t, narrow: narrow, rows: rows, with: with, codes: make([]byte, rows.Rows*t.paddedCols())}
	t.Amax, _ = r.amax(0, rows.Rows, 0, rows.Cols)
	if with.Amax != nil && q.Format.NeedsAmax() {
		t.Amax = *with.Amax
	}
	if q.Format.Global {
		r.global = arithmetics[q.Arithmetic].global(t.Amax, q.Format.Element.Max(), q.top())
		if with.Inverse != nil {
			r.global = givenGlobal(*with.Inverse)
		}
		t.Global = r.global.decode
	}
	if !q.Format.Scaled() {
		return t, r.cast()
	}
	height, width := blockExtent(q.Format.Block.Rows, rows.Rows), blockExtent(q.Format.Block.Cols, rows.Cols)
	for i := 0; i*height < rows.Rows; i++ {
		for j := 0; j*width < rows.Cols; j++ {
			r.block(i, j, height, width)
		}
	}
	r.join()
	return t, nil
}

// load returns the matrix whose rows are quantized.
func (q *Quantizer) load(x tensor.Dense, d Direction, with With) (tensor.Dense, error) {
	source, err := sourceOf(x)
	if err != nil {
		return tensor.Dense{}, err
	}
	if err := q.checkCopy(source, d, with); err != nil {
		return tensor.Dense{}, err
	}
	rows := x.Clone()
	if d == Columnwise {
		rows = x.Transpose()
	}
	for i := range rows.Rows {
		for j := 0; q.Hadamard && j < rows.Cols; j += hadamardSize {
			Hadamard16(rows.Row(i)[j : j+hadamardSize])
		}
	}
	return rows, nil
}

// A reference is one call of Reference.
type reference struct {
	q       *Quantizer
	t       *Tensor
	narrow  bool         // the source is BF16
	rows    tensor.Dense // of which each is quantized along itself
	with    With
	global  global
	codes   []byte  // one per byte, rows × stored width
	carried float32 // of With.Mean: what the errors of the row add up to so far
}

// block quantizes block (i, j) of height × width elements. A partial block at an edge has fewer; the
// codes that pad the last block of a row stay zero.
func (r *reference) block(i, j, height, width int) {
	r0, r1 := i*height, min((i+1)*height, r.rows.Rows)
	c0, c1 := j*width, min((j+1)*width, r.rows.Cols)
	if j == 0 {
		r.carried = 0
	}
	scale := r.scale(r0, r1, c0, c1)
	if r.t.Scales32 != nil {
		r.t.Scales32[i*r.t.scaleCols()+j] = scale.value
	} else {
		r.t.Scales[i*r.t.scaleCols()+j] = scale.code
	}
	for row := r0; row < r1; row++ {
		for col := c0; col < c1; col++ {
			r.codes[row*r.t.paddedCols()+col] = r.encode(row, col, scale.factor)
		}
	}
}

// scale returns the scale of the block of rows [r0, r1) and columns [c0, c1).
func (r *reference) scale(r0, r1, c0, c1 int) blockScale {
	amax, hasNaN := r.amax(r0, r1, c0, c1)
	if r.q.Format.PerTensor() {
		if r.with.Inverse != nil {
			return blockScale{value: 1 / *r.with.Inverse, factor: factor{value: *r.with.Inverse}}
		}
		amax, hasNaN = r.t.Amax, hasNaN || r.with.NaN
	}
	scale := r.q.blockScale(amax, hasNaN, r.global)
	if r.q.Format.PerTensor() {
		scale.factor = r.q.typed(scale.factor, r.narrow)
	}
	if r.q.Search != NoSearch && !hasNaN && isUsable(amax) && !scale.poison {
		scale = r.search(scale, amax, r0, r1, c0, c1)
	}
	return scale
}

// amax returns the largest magnitude of a block, NaN aside, and whether there is NaN.
func (r *reference) amax(r0, r1, c0, c1 int) (amax float32, hasNaN bool) {
	for row := r0; row < r1; row++ {
		for _, x := range r.rows.Row(row)[c0:c1] {
			hasNaN = hasNaN || x != x
			if a := float32(math.Abs(float64(x))); a > amax {
				amax = a
			}
		}
	}
	return amax, hasNaN
}

// encode returns the code of an element.
func (r *reference) encode(row, col int, f factor) byte {
	scaled := f.apply(r.rows.At(row, col))
	random := uint32(0)
	if r.q.Rounding == format.Stochastic {
		random = r.with.Random.At(r.element(row, col))
	}
	code := []byte{byte(r.q.Format.Element.EncodeWith(scaled, r.q.conversion(), random))}
	r.q.dropNegativeZeros(code, []float32{scaled})
	return code[0]
}

// element returns the index of an element in the source, by rows of the source.
func (r *reference) element(row, col int) uint64 {
	if r.t.Direction == Columnwise {
		row, col = col, row
	}
	return r.with.element(row, col, r.t.Cols())
}

// join stores the codes in the bytes of the tensor.
func (r *reference) join() {
	width := r.t.paddedCols()
	for row := range r.rows.Rows {
		r.q.Format.Element.Join(r.t.row(row), r.codes[row*width:(row+1)*width])
	}
}

// cast stores elements without a scale.
func (r *reference) cast() error {
	for row := range r.rows.Rows {
		if err := tensor.ToBytes(r.t.row(row), r.rows.Row(row), r.q.Format.Element); err != nil {
			return err
		}
	}
	return nil
}

// blockExtent returns the rows or columns of a block, of which 0 means all of n.
func blockExtent(extent, n int) int {
	if extent == 0 {
		return max(n, 1)
	}
	return extent
}
