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
// Columnwise do. Where there is a kernel for both, x is read once. The threads are
// those of the rowwise copy.
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
	if err := r.Quantizer.check(r.With); err != nil {
		return nil, nil, fmt.Errorf("rowwise: %w", err)
	}
	if err := c.Quantizer.check(c.With); err != nil {
		return nil, nil, fmt.Errorf("columnwise: %w", err)
	}
	shareAmax(x, &r, &c)
	if rows, columns = r.together(c, x, turned); rows != nil {
		return rows, columns, nil
	}
	if rows, err = r.Quantizer.quantize(x, Rowwise, r.With); err != nil {
		return nil, nil, fmt.Errorf("rowwise: %w", err)
	}
	if columns, err = c.Quantizer.quantize(turned, Columnwise, c.With); err != nil {
		return nil, nil, fmt.Errorf("columnwise: %w", err)
	}
	return rows, columns, nil
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
