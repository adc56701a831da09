package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/tensor"
)

// A Copy is how one of the two copies is made that training keeps of an operand.
type Copy struct {
	Quantizer Quantizer
	With      With
}

// Both returns the rowwise and the columnwise copy of x, the same as Rowwise and
// Columnwise do, from one read of x; from another before it where a scale is that of a
// whole row, column or tensor, and from two where it is of several whole ones (see
// tileable). The threads are those of the rowwise copy.
func Both(x tensor.Dense, rowwise, columnwise Copy) (rows, columns *Tensor, err error) {
	return both(denseSource(x), columnSource(x), rowwise, columnwise)
}

// BothBF16 is Both of a matrix in BF16, the same as RowwiseBF16 and ColumnwiseBF16.
func BothBF16(x tensor.BF16, rowwise, columnwise Copy) (rows, columns *Tensor, err error) {
	return both(rawSource(x), rawColumnSource(x), rowwise, columnwise)
}

// both is Both of a matrix whose rows, and columns, are the lines of two sources.
func both(x, turned source, r, c Copy) (rows, columns *Tensor, err error) {
	c.With.Threads = r.With.Threads
	shareAmax(x, &r, &c)
	row, err := r.Quantizer.begin(x, Rowwise, r.With)
	if err != nil {
		return nil, nil, fmt.Errorf("rowwise: %w", err)
	}
	col, err := c.Quantizer.begin(turned, Columnwise, c.With)
	if err != nil {
		return nil, nil, fmt.Errorf("columnwise: %w", err)
	}
	if row.q.tileable() && col.q.tileable() {
		quantizeTiles(row, col)
	} else {
		row.quantize()
		col.quantize()
	}
	return row.t, col.t, nil
}

// shareAmax finds the amax of x once, where both copies need it.
func shareAmax(x source, copies ...*Copy) {
	var asking []*Copy
	for _, c := range copies {
		if q := c.Quantizer; q.Format.NeedsAmax() && !q.Hadamard && c.With.Amax == nil && (q.NonFinite == Tolerate || !q.Format.PerTensor()) {
			asking = append(asking, c)
		}
	}
	if len(asking) < len(copies) {
		return
	}
	amax := x.amax(copies[0].With.Threads)
	for _, c := range asking {
		c.With.Amax = &amax
	}
}
