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
// columns from it on that follow each other in both.
func (c *Columns) run(i int) (first, n int) {
	for _, r := range c.Runs {
		if i < r.N {
			return r.First + i, r.N - i
		}
		i -= r.N
	}
	panic("quant: With.Columns has fewer columns than the matrix") // checkCopy counts them
}

// n returns the number of columns.
func (c *Columns) n() (n int) {
	for _, r := range c.Runs {
		n += r.N
	}
	return n
}

// valid reports whether the runs are within the columns of the tensor.
func (c *Columns) valid() bool {
	for _, r := range c.Runs {
		if r.First < 0 || r.N < 0 || r.First > c.Of-r.N {
			return false
		}
	}
	return true
}
