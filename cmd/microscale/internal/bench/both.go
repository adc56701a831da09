package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/microscale-go/microscale/quant"
)

// QuantizeRowwiseColumnwise measures quantizing a matrix to a rowwise and a columnwise copy, as training
// does. Each thread quantizes its share of the rows as a separate matrix. The rate counts the
// bytes of the source once. The limit streams the source in and the copies out; it reads the
// source twice for scales of whole rows or of the tensor. The amax is given to formats with a
// global scale.
func (t *Team) QuantizeRowwiseColumnwise(mem *Memory, c Conversion, budget time.Duration) ([]Result, error) {
	x := mem.source(c)
	with := quant.With{Threads: 1}
	if amax := x.amax(0, c.Rows, t.Threads()); c.Format.Global {
		with.Amax = &amax
	}
	shares := make([]func() error, t.Threads())
	for worker := range shares {
		from, to := t.chunk(worker, 0, 1, c.Rows, c.grain())
		row := quant.Copy{Quantizer: quant.Quantizer{Format: c.Format}, With: with}
		col := row
		shares[worker] = func() (err error) {
			row.With.Into, col.With.Into, err = x.both(from, to, row, col)
			return err
		}
		if err := shares[worker](); err != nil { // also faults in the pages of the copies
			return nil, err
		}
	}
	errs := make([]error, t.Threads())
	s := t.Measure(budget/2, func(worker, _ int) {
		if err := shares[worker](); err != nil {
			errs[worker] = err
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r := c.result(t, "quantize")
	r.Time, r.Both = s, true
	columns := Conversion{Format: c.Format, Source: c.Source, Rows: c.Cols, Cols: c.Rows}
	reads := 1
	if c.Format.Scaled() && c.Format.Block.Cols == 0 {
		reads = 2
	}
	limit := t.Stream(mem, c.sourceBytes(), (c.formatBytes()+columns.formatBytes())/reads, AnyStores, budget/2)
	r.bound(limit, float64(c.sourceBytes())/float64(reads))
	r.LimitBy += ", rowwise and columnwise"
	if reads > 1 {
		r.LimitBy += fmt.Sprintf(", %d reads of the source", reads)
	}
	return []Result{r, limit}, nil
}
