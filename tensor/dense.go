// Package tensor holds dense row-major matrices: the common form between the bytes of a
// checkpoint and the codes of a quantized tensor.
//
//	element (i, j) = Data[i·Stride + j],  0 ≤ i < Rows,  0 ≤ j < Cols ≤ Stride
package tensor

import (
	"fmt"
	"math"
)

// Dense is a float32 matrix, or a view that shares the data of one.
type Dense struct {
	Rows, Cols int
	Stride     int // elements from one row to the next
	Data       []float32
}

// New returns a zero matrix. It panics if a dimension is negative or the number of elements
// overflows.
func New(rows, cols int) Dense {
	n, ok := elements(rows, cols)
	if !ok {
		panic(fmt.Sprintf("tensor: invalid shape %d×%d", rows, cols))
	}
	return Dense{Rows: rows, Cols: cols, Stride: cols, Data: make([]float32, n)}
}

// Of returns a rows×cols matrix that shares data. It panics if len(data) is not rows·cols.
func Of(rows, cols int, data []float32) Dense {
	if n, ok := elements(rows, cols); !ok || len(data) != n {
		panic(fmt.Sprintf("tensor: got %d elements, want those of a %d×%d matrix", len(data), rows, cols))
	}
	return Dense{Rows: rows, Cols: cols, Stride: cols, Data: data}
}

// elements returns rows·cols and whether a float32 matrix of that size is possible.
func elements(rows, cols int) (n int, ok bool) {
	const maxElements = math.MaxInt / 4
	if rows < 0 || cols < 0 || cols > 0 && rows > maxElements/cols {
		return 0, false
	}
	return rows * cols, true
}

// mustHold panics if err is not nil.
func mustHold(err error) {
	if err != nil {
		panic(fmt.Sprintf("tensor: %v", err))
	}
}

// Validate returns an error if the shape is invalid or Data is too short for it.
func (d Dense) Validate() error { return checkShape(d.Rows, d.Cols, d.Stride, len(d.Data)) }

// checkShape is Validate for a matrix over the given number of elements.
func checkShape(rows, cols, stride, elements int) error {
	switch {
	case rows < 0 || cols < 0:
		return fmt.Errorf("invalid shape %d×%d", rows, cols)
	case stride < cols:
		return fmt.Errorf("%d×%d matrix: the stride, %d, is less than the columns", rows, cols, stride)
	case rows > 0 && elements < cols, rows > 1 && stride > (elements-cols)/(rows-1): // products might overflow
		return fmt.Errorf("got %d elements, too few for a %d×%d matrix with stride %d", elements, rows, cols, stride)
	}
	return nil
}

// Row returns row i, shared with d. It panics if row i is not within len(Data); further
// capacity does not count.
func (d Dense) Row(i int) []float32 {
	data := d.Data[:len(d.Data):len(d.Data)]
	return data[i*d.Stride : i*d.Stride+d.Cols : i*d.Stride+d.Cols]
}

// At returns element (i, j).
func (d Dense) At(i, j int) float32 { return d.Row(i)[j] }

// Set sets element (i, j) to v.
func (d Dense) Set(i, j int, v float32) { d.Row(i)[j] = v }

// View returns rows [r0, r1) and columns [c0, c1), shared with d. It panics if they are not
// within d, or if Validate fails.
func (d Dense) View(r0, r1, c0, c1 int) Dense {
	mustHold(d.Validate())
	if r0 < 0 || r1 < r0 || d.Rows < r1 || c0 < 0 || c1 < c0 || d.Cols < c1 {
		panic(fmt.Sprintf("tensor: view of rows %d:%d and columns %d:%d: out of range of a %d×%d matrix", r0, r1, c0, c1, d.Rows, d.Cols))
	}
	if r0 == r1 || c0 == c1 {
		return New(r1-r0, c1-c0) // there is no data to share
	}
	return Dense{Rows: r1 - r0, Cols: c1 - c0, Stride: d.Stride, Data: d.Data[r0*d.Stride+c0 : (r1-1)*d.Stride+c1]}
}

// Transpose returns a new matrix with element (j, i) = d(i, j). It panics if Validate fails.
func (d Dense) Transpose() Dense {
	mustHold(d.Validate())
	t := New(d.Cols, d.Rows)
	const tile = 32 // source and destination tiles fit the first-level cache
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

// Clone returns a contiguous copy. It panics if Validate fails.
func (d Dense) Clone() Dense {
	mustHold(d.Validate())
	c := New(d.Rows, d.Cols)
	for i := range d.Rows {
		copy(c.Row(i), d.Row(i))
	}
	return c
}
