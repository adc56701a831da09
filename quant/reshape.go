package quant

import (
	"bytes"
	"fmt"
	"slices"
)

// The functions of this file move codes and scales. They do not requantize. It is an error to cut a
// block in two, to join parts that have different scales, or to use a tensor that is not
// valid (see Validate).

// Reshape returns t with other leading dimensions: shape has the same last
// dimension and the same number of rows. The codes are shared.
func (t *Tensor) Reshape(shape ...int) (*Tensor, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("cannot reshape: %w", err)
	}
	rows, negative := 1, false
	for _, d := range shape[:max(0, len(shape)-1)] {
		rows *= d
		negative = negative || d < 0
	}
	if len(shape) < 2 || shape[len(shape)-1] != t.Cols() || rows != t.Rows() || negative {
		return nil, fmt.Errorf("cannot reshape a %s tensor of shape %v to %v: the last dimension stays, and the product of the others", t.Format, t.Shape, shape)
	}
	r := *t
	r.Shape = append([]int(nil), shape...)
	return &r, nil
}

// SliceRows returns rows [from, to) of t as a matrix. Where blocks extend over
// rows, from and to lie on their edges, or to is the end.
func (t *Tensor) SliceRows(from, to int) (*Tensor, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("cannot slice: %w", err)
	}
	if from < 0 || to < from || t.Rows() < to {
		return nil, fmt.Errorf("rows %d:%d are outside a %s tensor of %d rows", from, to, t.Format, t.Rows())
	}
	extent := t.rowExtent()
	if extent > 0 && (from%extent != 0 || to%extent != 0 && to != t.Rows()) {
		return nil, fmt.Errorf("rows %d:%d cut a block: %s %s blocks span %d rows; slice at their multiples", from, to, t.Direction, t.Format, extent)
	}
	s := newTensor(t.Format, t.Direction, to-from, t.Cols())
	s.Global, s.Amax = t.Global, t.Amax
	if t.Direction == Rowwise {
		copy(s.Codes, t.Codes[from*t.RowBytes():])
		s.copyScales(t, blockIndex(from, extent), 0)
		return s, nil
	}
	first, _ := t.Format.Element.StoredBytes(from)
	for l := range s.StoredRows() {
		copy(s.row(l), t.row(l)[first:])
	}
	s.copyScales(t, 0, blockIndex(from, extent))
	return s, nil
}

// Concat returns the rows of the tensors one after the other, as a matrix. They
// agree in format, direction and columns, and in the scale of the whole tensor
// where there is one; where blocks extend over rows, all but the last end on
// their edges.
func Concat(tensors ...*Tensor) (*Tensor, error) {
	if len(tensors) == 0 {
		return nil, fmt.Errorf("nothing to concatenate")
	}
	for i, t := range tensors {
		if err := t.Validate(); err != nil {
			return nil, fmt.Errorf("cannot concatenate tensor %d: %w", i, err)
		}
	}
	first, rows := tensors[0], 0
	if i := slices.IndexFunc(tensors, func(t *Tensor) bool { return t.Rows() > 0 }); i >= 0 {
		first = tensors[i] // a part without rows has no scales
	}
	for i, t := range tensors {
		if err := first.joins(t); err != nil {
			return nil, fmt.Errorf("cannot concatenate tensor %d: %w", i, err)
		}
		if extent := t.rowExtent(); extent > 0 && rows%extent != 0 {
			return nil, fmt.Errorf("cannot concatenate tensor %d: the rows before it end within a block of %d rows", i, extent)
		}
		rows += t.Rows()
	}
	c := newTensor(first.Format, first.Direction, rows, first.Cols())
	c.Global = first.Global
	at := 0
	for _, t := range tensors {
		c.Amax = max(c.Amax, t.Amax)
		extent := t.rowExtent()
		if c.Direction == Rowwise {
			copy(c.Codes[at*c.RowBytes():], t.Codes)
			c.pasteScales(t, blockIndex(at, extent), 0)
		} else {
			start, _ := c.Format.Element.StoredBytes(at)
			for l := range c.StoredRows() {
				copy(c.row(l)[start:], t.row(l))
			}
			c.pasteScales(t, 0, blockIndex(at, extent))
		}
		at += t.Rows()
	}
	return c, nil
}

// Transpose returns the transposed matrix with the same codes and the same
// scales in their new places. Blocks must be square, or the tensor have one scale.
func (t *Tensor) Transpose() (*Tensor, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("cannot transpose: %w", err)
	}
	if !t.Format.Square() {
		return nil, fmt.Errorf("cannot transpose %s codes: got blocks of %d×%d, want square ones; quantize the transpose from the source", t.Format, max(1, t.Format.Block.Rows), t.Format.Block.Cols)
	}
	r := newTensor(t.Format, t.Direction, t.Cols(), t.Rows())
	r.Global, r.Amax = t.Global, t.Amax
	if size := t.Format.Element.StoredBits() / 8; size > 0 {
		transposeBytes(r.Codes, t.Codes, t.StoredRows(), t.StoredCols(), r.RowBytes(), t.RowBytes(), size, false)
	} else {
		t.transposeBits(r)
	}
	r.setTransposedScales(t)
	return r, nil
}

// setTransposedScales sets the scales of t to those of a transpose, of as many rows of
// blocks as t has columns of them.
func (t *Tensor) setTransposedScales(of *Tensor) {
	rows, cols := t.ScaleShape()
	for i := range rows {
		for j := range cols {
			if t.Scales32 != nil {
				t.Scales32[i*cols+j] = of.Scales32[j*rows+i]
			} else {
				t.Scales[i*cols+j] = of.Scales[j*rows+i]
			}
		}
	}
}

// transposeBits sets the codes of r, of less than a byte, to those of the transpose
// of t: some columns at a time, one code per byte.
func (t *Tensor) transposeBits(r *Tensor) {
	const together = 64
	element, width := t.Format.Element, r.paddedCols()
	codes := make([]byte, t.StoredRows()*together)
	columns := make([]byte, together*width)
	for c0 := 0; c0 < t.StoredCols(); c0 += together {
		n := min(together, t.paddedCols()-c0) // of whole bytes, as blocks are
		from, _ := element.StoredBytes(c0)
		to, _ := element.StoredBytes(c0 + n)
		for l := range t.StoredRows() {
			element.Split(codes[l*n:(l+1)*n], t.row(l)[from:to])
		}
		n1 := min(together, t.StoredCols()-c0)
		transposeBytes(columns, codes, t.StoredRows(), n1, width, n, 1, false)
		for c := range n1 {
			element.Join(r.row(c0+c), columns[c*width:(c+1)*width])
		}
	}
}

// rowExtent returns how many rows of the source a block spans, 0 where any
// number of them do.
func (t *Tensor) rowExtent() int {
	if t.Direction == Columnwise {
		return t.Format.Block.Cols
	}
	return t.Format.Block.Rows
}

// joins reports what keeps the rows of u from following those of t.
func (t *Tensor) joins(u *Tensor) error {
	switch {
	case t.Format.Name != u.Format.Name || t.Format.Block != u.Format.Block || t.Direction != u.Direction:
		return fmt.Errorf("%s %s after %s %s", u.Direction, u.Format, t.Direction, t.Format)
	case t.Cols() != u.Cols():
		return fmt.Errorf("%d columns after %d", u.Cols(), t.Cols())
	case u.Rows() == 0:
		return nil
	case t.Global != u.Global:
		return fmt.Errorf("its global scale is %g, the first one's %g: quantize them with a common amax", u.Global, t.Global)
	}
	if t.rowExtent() == 0 && !bytes.Equal(t.ScaleBytes(), u.ScaleBytes()) {
		return fmt.Errorf("its scale, which all rows share, differs from the first one's: quantize them with a common amax")
	}
	return nil
}

// copyScales fills the scales of t from those of src, beginning at (row, col).
func (t *Tensor) copyScales(src *Tensor, row, col int) {
	rows, cols := t.ScaleShape()
	_, stride := src.ScaleShape()
	for i := range rows {
		from := (row+i)*stride + col
		if t.Scales32 != nil {
			copy(t.Scales32[i*cols:(i+1)*cols], src.Scales32[from:])
		} else if t.Scales != nil {
			copy(t.Scales[i*cols:(i+1)*cols], src.Scales[from:])
		}
	}
}

// pasteScales writes the scales of src into those of t at (row, col).
func (t *Tensor) pasteScales(src *Tensor, row, col int) {
	rows, cols := src.ScaleShape()
	_, stride := t.ScaleShape()
	for i := range rows {
		to := (row+i)*stride + col
		if t.Scales32 != nil {
			copy(t.Scales32[to:to+cols], src.Scales32[i*cols:])
		} else if t.Scales != nil {
			copy(t.Scales[to:to+cols], src.Scales[i*cols:])
		}
	}
}
