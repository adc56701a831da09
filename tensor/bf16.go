package tensor

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// BF16 is a matrix of BF16 values as checkpoints store them, two little-endian
// bytes each:
//
//	element (i, j) = Data[2·(i·Stride + j):],  0 ≤ i < Rows,  0 ≤ j < Cols ≤ Stride
type BF16 struct {
	Rows, Cols int
	Stride     int // elements from one row to the next
	Data       []byte
}

// OfBF16 returns a matrix over data, which it does not copy. It panics where
// data does not hold rows·cols values.
func OfBF16(rows, cols int, data []byte) BF16 {
	if rows < 0 || cols < 0 || len(data) != 2*rows*cols {
		panic(fmt.Sprintf("tensor: %d bytes do not fill a %d×%d matrix of BF16", len(data), rows, cols))
	}
	return BF16{Rows: rows, Cols: cols, Stride: cols, Data: data}
}

// Validate reports a shape that no matrix has, and data that does not hold it.
func (b BF16) Validate() error { return checkShape(b.Rows, b.Cols, b.Stride, len(b.Data)/2) }

// Row returns the bytes of row i, shared with b.
func (b BF16) Row(i int) []byte {
	from, to := 2*i*b.Stride, 2*(i*b.Stride+b.Cols)
	return b.Data[from:to:to]
}

// Dense returns the values, which are exact.
func (b BF16) Dense() Dense {
	d := New(b.Rows, b.Cols)
	for i := range b.Rows {
		if err := FromBytes(d.Row(i), b.Row(i), format.BF16); err != nil {
			panic(err) // a row is of its length
		}
	}
	return d
}
