// Package tensor holds dense row-major float32 matrices: the common form between
// the bytes of a checkpoint and the codes of a quantized tensor.
//
//	element (i, j) = Data[i·Stride + j],  0 ≤ i < Rows,  0 ≤ j < Cols ≤ Stride
package tensor

import "fmt"

// Dense is a matrix, or a view of one that shares its data.
type Dense struct {
	Rows, Cols int
	Stride     int // elements from one row to the next
	Data       []float32
}

// New returns a zero matrix of the given shape.
func New(rows, cols int) Dense {
	return Dense{Rows: rows, Cols: cols, Stride: cols, Data: make([]float32, rows*cols)}
}

// Of returns a matrix over data, which it does not copy. It panics where
// len(data) is not rows·cols.
func Of(rows, cols int, data []float32) Dense {
	if rows < 0 || cols < 0 || len(data) != rows*cols {
		panic(fmt.Sprintf("tensor: %d elements do not fill a %d×%d matrix", len(data), rows, cols))
	}
	return Dense{Rows: rows, Cols: cols, Stride: cols, Data: data}
}

// Validate reports a shape that no matrix has, and data that does not hold it.
func (d Dense) Validate() error { return checkShape(d.Rows, d.Cols, d.Stride, len(d.Data)) }

// checkShape is Validate of a matrix over so many elements.
func checkShape(rows, cols, stride, elements int) error {
	switch {
	case rows < 0 || cols < 0:
		return fmt.Errorf("no matrix is %d×%d", rows, cols)
	case stride < cols:
		return fmt.Errorf("the rows of a %d×%d matrix overlap with %d elements from row to row", rows, cols, stride)
	case rows > 0 && elements < cols, rows > 1 && stride > (elements-cols)/(rows-1): // products might overflow
		return fmt.Errorf("%d elements are too few for a %d×%d matrix with %d from row to row", elements, rows, cols, stride)
	}
	return nil
}

// Row returns row i, shared with d.
func (d Dense) Row(i int) []float32 {
	return d.Data[i*d.Stride : i*d.Stride+d.Cols : i*d.Stride+d.Cols]
}

// At returns element (i, j).
func (d Dense) At(i, j int) float32 { return d.Row(i)[j] }

// Set changes element (i, j).
func (d Dense) Set(i, j int, v float32) { d.Row(i)[j] = v }

// View returns rows [r0, r1) and columns [c0, c1), shared with d. It panics
// where they are not within d.
func (d Dense) View(r0, r1, c0, c1 int) Dense {
	if r0 < 0 || r1 < r0 || d.Rows < r1 || c0 < 0 || c1 < c0 || d.Cols < c1 {
		panic(fmt.Sprintf("tensor: view of rows %d:%d and columns %d:%d is outside a %d×%d matrix", r0, r1, c0, c1, d.Rows, d.Cols))
	}
	if r0 == r1 || c0 == c1 {
		return New(r1-r0, c1-c0) // nothing to share
	}
	return Dense{Rows: r1 - r0, Cols: c1 - c0, Stride: d.Stride, Data: d.Data[r0*d.Stride+c0 : (r1-1)*d.Stride+c1]}
}

// Transpose returns a new matrix with element (j, i) = d(i, j).
func (d Dense) Transpose() Dense {
	t := New(d.Cols, d.Rows)
	const tile = 32 // both sides of a tile stay in the first-level cache
	for i0 := 0; i0 < d.Rows; i0 += tile {
		for j0 := 0; j0 < d.Cols; j0 += tile {
			for i := i0; i < min(i0+tile, d.Rows); i++ {
				row := d.Row(i)
				for j := j0; j < min(j0+tile, d.Cols); j++ {
					t.Data[j*t.Stride+i] = row[j]
				}
			}
		}
	}
	return t
}

// Clone returns a copy without gaps between its rows.
func (d Dense) Clone() Dense {
	c := New(d.Rows, d.Cols)
	for i := range d.Rows {
		copy(c.Row(i), d.Row(i))
	}
	return c
}
