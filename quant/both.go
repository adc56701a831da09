package quant

import (
	"fmt"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// A Copy is how one of the two copies is made that training keeps of an operand.
type Copy struct {
	Quantizer Quantizer
	With      With
}

// Both returns the rowwise and the columnwise copy of x, the same as Rowwise and
// Columnwise do. Where there are kernels for both, the columns are quantized while
// their rows are still in a cache, so that x is read from memory once. The threads
// are those of the rowwise copy.
func Both(x tensor.Dense, rowwise, columnwise Copy) (rows, columns *Tensor, err error) {
	r, c := rowwise, columnwise
	c.With.Threads = r.With.Threads
	if err := r.Quantizer.check(r.With); err != nil {
		return nil, nil, fmt.Errorf("rowwise: %w", err)
	}
	if err := c.Quantizer.check(c.With); err != nil {
		return nil, nil, fmt.Errorf("columnwise: %w", err)
	}
	shareAmax(x, &r, &c)
	if rows, columns = r.beside(c, x); rows != nil {
		return rows, columns, nil
	}
	if rows, err = r.Quantizer.Rowwise(x, r.With); err != nil {
		return nil, nil, fmt.Errorf("rowwise: %w", err)
	}
	if columns, err = c.Quantizer.Columnwise(x, c.With); err != nil {
		return nil, nil, fmt.Errorf("columnwise: %w", err)
	}
	return rows, columns, nil
}

// shareAmax finds the amax of x once, where both copies need it.
func shareAmax(x tensor.Dense, copies ...*Copy) {
	var asking []*Copy
	for _, c := range copies {
		if q := c.Quantizer; q.Format.NeedsAmax() && !q.Hadamard && c.With.Amax == nil && (q.NonFinite == Tolerate || !q.Format.PerTensor()) {
			asking = append(asking, c)
		}
	}
	if len(asking) < len(copies) {
		return
	}
	amax := Amax(x, copies[0].With.Threads)
	for _, c := range asking {
		c.With.Amax = &amax
	}
}

// Rows and columns of x that both copies are made of while they are in the
// second-level cache: as many blocks of the columnwise one as are collected, and whole groups of the
// rowwise one.
const (
	besideRows    = 64
	besideColumns = 2048
)

// beside is Both by kernels; nil where there are none for it.
func (r Copy) beside(c Copy, x tensor.Dense) (rows, columns *Tensor) {
	if r.Quantizer.Hadamard || c.Quantizer.Hadamard || x.Rows == 0 || x.Cols%tileColumns != 0 || r.With.Scales != nil || c.With.Scales != nil {
		return nil, nil
	}
	row, err := r.Quantizer.newRun(denseSource(x), Rowwise, r.With)
	if err != nil || !row.q.Format.Scaled() {
		return nil, nil
	}
	col, err := c.Quantizer.newRun(columnSource(x), Columnwise, c.With)
	if err != nil || !col.q.Format.Scaled() {
		return nil, nil
	}
	fused, columnKernel := row.fused(), col.columnKernel()
	if fused == nil || columnKernel == nil || besideColumns%row.t.extent() > 0 || besideRows != spreadBlocks*col.t.extent() {
		return nil, nil
	}
	perLine, size, extent := row.t.scaleCols(), row.x.elementBytes(), col.t.extent()
	lines := 1 // that are quantized together, as one block behind the other
	if !row.x.hasGaps() && x.Cols <= besideColumns && x.Cols%row.t.extent() == 0 {
		lines = besideRows
	}
	var seen atomic.Uint32
	parallel.For(ceilDiv(x.Rows, besideRows), 1, r.With.Threads, func(from, to int) {
		f := row.newFusedRun(fused)
		columns := col.newColumnRun()
		var amax uint32
		for l0 := from * besideRows; l0 < min(to*besideRows, x.Rows); l0 += besideRows {
			l1 := min(l0+besideRows, x.Rows)
			for c0 := 0; c0 < x.Cols; c0 += besideColumns {
				c1 := min(c0+besideColumns, x.Cols)
				for l, n := l0, lines; l < l1; l += n {
					n = min(n, l1-l)
					amax = max(amax, f.blocks(l*perLine+c0/f.extent, row.x.bytes(l, l+n)[c0*size:][:((n-1)*x.Cols+c1-c0)*size]))
				}
				columns.blocks(c0, c1, l0/extent, ceilDiv(l1, extent))
			}
		}
		f.endStream()
		atomicMax(&seen, amax)
	})
	row.saw(&seen)
	col.saw(&seen)
	return row.t, col.t
}
