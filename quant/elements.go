package quant

// element returns the index of element (row, col) of a matrix of cols columns in the tensor
// that With describes, by rows.
func (w *With) element(row, col, cols int) uint64 {
	if w.Columns != nil {
		col, _ = w.Columns.run(col)
		cols = w.Columns.Of
	}
	return uint64(w.FirstRow+row)*uint64(cols) + uint64(col)
}

// run returns the column of the wider tensor that is column i of the part, and the number of
// columns from it on that are adjacent in the part and in the tensor.
func (c *Columns) run(i int) (first, n int) {
	for _, r := range c.Ranges {
		if n := r[1] - r[0]; i >= n {
			i -= n
			continue
		}
		return r[0] + i, r[1] - r[0] - i
	}
	panic("quant: With.Columns has fewer columns than the matrix") // checkCopy counts them
}

// n returns the number of columns.
func (c *Columns) n() (n int) {
	for _, r := range c.Ranges {
		n += r[1] - r[0]
	}
	return n
}

// valid reports whether the ranges are within the columns of the tensor.
func (c *Columns) valid() bool {
	for _, r := range c.Ranges {
		if r[0] < 0 || r[0] > r[1] || r[1] > c.Of {
			return false
		}
	}
	return true
}

// variance returns that of the input at a position along the stored rows.
func (w With) variance(pos int) float32 {
	return max(0, w.Importance[pos]-float32(w.Mean[pos]*w.Mean[pos]))
}

// importance returns the weight of the error of a position along the stored rows.
func (w With) importance(pos int) float64 {
	if w.Importance == nil {
		return 1
	}
	return float64(w.Importance[pos])
}
