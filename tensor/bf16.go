package tensor

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// BF16 is a matrix of BF16 values as checkpoints store them, two little-endian bytes each:
//
//	element (i, j) = Data[2·(i·Stride + j):],  0 ≤ i < Rows,  0 ≤ j < Cols ≤ Stride
type BF16 struct {
	Rows, Cols int
	Stride     int // elements from one row to the next
	Data       []byte
}

// OfBF16 returns a rows×cols matrix that shares data. It panics if data does not hold exactly
// rows·cols values.
func OfBF16(rows, cols int, data []byte) BF16 {
	if n, ok := elements(rows, cols); !ok || len(data) != 2*n {
		panic(fmt.Sprintf("tensor: got %d bytes, want those of a %d×%d matrix of BF16", len(data), rows, cols))
	}
	return BF16{Rows: rows, Cols: cols, Stride: cols, Data: data}
}

// Validate returns an error if the shape is invalid or Data is too short for it.
func (b BF16) Validate() error { return checkShape(b.Rows, b.Cols, b.Stride, len(b.Data)/2) }

// Row returns the bytes of row i, shared with b. It panics if row i is not within len(Data);
// further capacity does not count.
func (b BF16) Row(i int) []byte {
	data := b.Data[:len(b.Data):len(b.Data)]
	from, to := 2*i*b.Stride, 2*(i*b.Stride+b.Cols)
	return data[from:to:to]
}

// Dense returns the matrix as float32, which is exact. It panics if Validate fails.
func (b BF16) Dense() Dense {
	mustHold(b.Validate())
	d := New(b.Rows, b.Cols)
	for i := range b.Rows {
		if err := FromBytes(d.Row(i), b.Row(i), format.BF16); err != nil {
			panic(err) // the lengths match
		}
	}
	return d
}
