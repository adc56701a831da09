package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/tensor"
)

// A Copy says how to make one of the two copies of an operand that training keeps.
type Copy struct {
	Quantizer Quantizer
	With      With
}

// RowwiseColumnwise returns the rowwise and the columnwise copy of x, with the bits of Rowwise and
// Columnwise, or of RowwiseBF16 and ColumnwiseBF16. It uses the threads of the rowwise copy.
//
// The copies share one read of x, after another one for scales of a whole row, column or tensor. Each
// copy reads x separately if a scale extends over several whole rows or columns, or over one and
// depends on a search or on the Hadamard transform.
//
// RowwiseColumnwise returns the errors of the rowwise and of the columnwise copy, each with the name
// of its copy, and an error if the tensors of With.Into share memory. On error, these are unchanged.
func RowwiseColumnwise[M tensor.Dense | tensor.BF16](x M, rowwise, columnwise Copy) (rows, columns *Tensor, err error) {
	s, err := sourceOf(x)
	if err != nil {
		return nil, nil, err
	}
	return rowwiseColumnwise(s, rowwise, columnwise)
}

func rowwiseColumnwise(x source, r, c Copy) (rows, columns *Tensor, err error) {
	if err := r.Quantizer.checkCopy(x, Rowwise, r.With); err != nil {
		return nil, nil, fmt.Errorf("rowwise: %w", err)
	}
	c.With.Threads = r.With.Threads
	if err := c.Quantizer.checkCopy(x, Columnwise, c.With); err != nil {
		return nil, nil, fmt.Errorf("columnwise: %w", err)
	}
	if r.With.Into != nil && c.With.Into != nil {
		others := r.With.Into.regions("the codes of the rowwise copy", "the scales of the rowwise copy")
		if err := c.With.Into.checkApart(others[:]...); err != nil {
			return nil, nil, fmt.Errorf("columnwise: %w", err)
		}
	}
	finite := shareAmax(x, &r, &c)
	var row, col output
	row.prepare(&r.Quantizer, x, Rowwise, r.With)
	col.prepare(&c.Quantizer, x, Columnwise, c.With)
	row.finite = row.finite || finite && row.q.Format.PerTensor()
	col.finite = col.finite || finite && col.q.Format.PerTensor()
	new(pipeline).run(x, &row, &col, r.With.Threads)
	return row.t, col.t, nil
}

// shareAmax finds the amax of x once, if the rowwise and the columnwise copy scale by it. finite
// reports that x was read and has neither NaN nor Inf.
func shareAmax(x source, r, c *Copy) (finite bool) {
	if !r.findsAmax() || !c.findsAmax() {
		return false
	}
	amax, hasNaN := x.amax(r.With.Threads)
	r.With.Amax, c.With.Amax = &amax, &amax
	return !hasNaN && amax <= maxFloat32
}

// findsAmax reports whether the copy scales by the amax of the untransformed matrix.
func (c *Copy) findsAmax() bool {
	return c.Quantizer.Format.NeedsAmax() && !c.Quantizer.Hadamard && c.With.Amax == nil
}

// transposes reports whether o, a columnwise copy, is the transpose of a rowwise one: where
// blocks are square, and both are made in the same way.
func (o *output) transposes(row *output) bool {
	q := o.q
	return q.Format.Square() && *q == *row.q && q.Format.Element.StoredBits()%8 == 0 && !q.Hadamard && q.Search == NoSearch &&
		o.tensorFactor == row.tensorFactor && o.global == row.global && o.with.Random == row.with.Random &&
		o.with.FirstRow == row.with.FirstRow && o.with.Columns == row.with.Columns
}

// transposeTile stores rows [r0, r1) of columns [c0, c1) from the codes of the rowwise copy,
// with the zeros that fill up the last blocks.
func (o *output) transposeTile(row *output, r0, r1, c0, c1 int) {
	o.storeTransposed(c0, r0, row.codesAt(r0, c0), r1-r0, c1-c0, row.t.RowBytes())
	if r1 == o.t.StoredCols() {
		for c := c0; c < c1; c++ {
			clear(o.t.row(c)[r1*o.q.Format.Element.StoredBits()/8:])
		}
	}
}

// storeTransposed stores the transpose of rows × cols codes of whole bytes, stride bytes from one row to
// the next, as stored rows from row on, from an element on.
func (o *output) storeTransposed(row, pos int, codes []byte, rows, cols, stride int) {
	dst := o.codesAt(row, pos)
	stream := o.stream && isAligned(dst) && o.t.RowBytes()%cacheLine == 0
	transposeBytes(dst, codes, rows, cols, o.t.RowBytes(), stride, o.q.Format.Element.StoredBits()/8, stream)
}
