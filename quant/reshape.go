package quant

import (
	"bytes"
	"fmt"
	"slices"
)

// The functions of this file move codes and scales. They do not requantize. It is an error to cut a
// block in two, to join parts that have different scales, or to use a tensor that is not
// valid (see Validate).

// Reshape returns t with other leading dimensions. The last dimension and the product of the others
// stay the same. The result shares codes and scales with t.
func (t *Tensor) Reshape(shape ...int) (*Tensor, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("cannot reshape: %w", err)
	}
	r := *t
	r.Shape = slices.Clone(shape)
	if len(shape) < 2 || r.Validate() != nil || r.Cols() != t.Cols() || r.Rows() != t.Rows() {
		return nil, fmt.Errorf("cannot reshape a %s tensor of shape %v to %v: want the same last dimension, and the same product of the others",
			t.Format, t.Shape, shape)
	}
	return &r, nil
}

// SliceRows returns a copy of rows [from, to) of the source of t, as a matrix. It returns an error
// if from or to is inside a block; to may be the last row's end.
func (t *Tensor) SliceRows(from, to int) (*Tensor, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("cannot slice: %w", err)
	}
	if from < 0 || to < from || t.Rows() < to {
		return nil, fmt.Errorf("rows %d:%d are outside a %s tensor of %d rows", from, to, t.Format, t.Rows())
	}
	extent := t.rowExtent()
	if extent > 0 && (from%extent != 0 || to%extent != 0 && to != t.Rows()) {
		return nil, fmt.Errorf("rows %d:%d cut a block: %s %s blocks span %d rows; slice at their multiples", from, to, t.Direction, t.Format,
			extent)
	}
	s := newTensor(t.Format, t.Direction, to-from, t.Cols())
	s.Global, s.Amax = t.Global, t.Amax
	if t.Direction == Rowwise {
		copy(s.Codes, t.Codes[from*t.RowBytes():])
		s.copyScales(t, blockIndex(from, extent), 0)
		return s, nil
	}
	first, _ := t.Format.Element.StoredBytes(from)
	for i := range s.StoredRows() {
		copy(s.row(i), t.row(i)[first:])
	}
	s.copyScales(t, 0, blockIndex(from, extent))
	return s, nil
}

// ViewRows returns rows [from, to) of t, a rowwise tensor, in its memory: SliceRows copies. Blocks must not cross the bounds.
func (t *Tensor) ViewRows(from, to int) *Tensor {
	rows := *t
	rows.Shape = []int{to - from, t.Cols()}
	n := t.RowBytes()
	rows.Codes = t.Codes[from*n : to*n]
	if !t.Format.Scaled() || t.Format.PerTensor() {
		return &rows
	}
	first, width := t.Format.ScaleShape(from, t.Cols())
	end, _ := t.Format.ScaleShape(to, t.Cols())
	if t.Scales32 != nil {
		rows.Scales32 = t.Scales32[first*width : end*width]
	} else {
		rows.Scales = t.Scales[first*width : end*width]
	}
	return &rows
}

// Concat returns a matrix of the rows of the tensors, one after another. It returns an error if
// formats, directions, columns, or scales of the whole tensor differ, or if a tensor but the last
// ends inside a block.
func Concat(tensors ...*Tensor) (*Tensor, error) {
	if len(tensors) == 0 {
		return nil, fmt.Errorf("nothing to concatenate")
	}
	for i, t := range tensors {
		if t == nil {
			return nil, fmt.Errorf("cannot concatenate tensor %d: it is nil", i)
		}
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
			for i := range c.StoredRows() {
				copy(c.row(i)[start:], t.row(i))
			}
			c.pasteScales(t, 0, blockIndex(at, extent))
		}
		at += t.Rows()
	}
	return c, nil
}

// Transpose returns the transposed matrix: the same codes and scales in other places. It returns an
// error unless blocks are square or the tensor has at most one scale.
func (t *Tensor) Transpose() (*Tensor, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("cannot transpose: %w", err)
	}
	if !t.Format.Square() {
		return nil, fmt.Errorf("cannot transpose %s codes: got blocks of %d×%d, want square ones; quantize the transpose from the source",
			t.Format, max(1, t.Format.Block.Rows), t.Format.Block.Cols)
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

// setTransposedScales sets the scales of t to the transpose of those of another tensor.
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

// transposeBits sets the codes of r, which have less than a byte, to the transpose of those of t: a
// few columns at a time, one code per byte.
func (t *Tensor) transposeBits(r *Tensor) {
	const together = 64
	element, width := t.Format.Element, r.paddedCols()
	codes := make([]byte, t.StoredRows()*together)
	columns := make([]byte, together*width)
	for c0 := 0; c0 < t.StoredCols(); c0 += together {
		n := min(together, t.paddedCols()-c0) // of whole bytes, as blocks are
		from, _ := element.StoredBytes(c0)
		to, _ := element.StoredBytes(c0 + n)
		for i := range t.StoredRows() {
			element.Split(codes[i*n:(i+1)*n], t.row(i)[from:to])
		}
		n1 := min(together, t.StoredCols()-c0)
		transposeBytes(columns, codes, t.StoredRows(), n1, width, n, 1, false)
		for c := range n1 {
			element.Join(r.row(c0+c), columns[c*width:(c+1)*width])
		}
	}
}

// rowExtent returns the number of rows of the source that a block spans; 0: all.
func (t *Tensor) rowExtent() int {
	if t.Direction == Columnwise {
		return t.Format.Block.Cols
	}
	return t.Format.Block.Rows
}

// joins returns an error if Concat cannot append the rows of u to those of t.
func (t *Tensor) joins(u *Tensor) error {
	switch {
	case !t.Format.same(u.Format) || t.Direction != u.Direction:
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
