package quant

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Amax returns the amax that q scales a copy of x by: its largest magnitude, after the Hadamard
// transform along d if q has one. NaN is ignored, Inf is not. Ranks that have parts of a tensor
// pass the maximum over the parts as With.Amax.
func (q Quantizer) Amax(x tensor.Dense, d Direction, threads int) (float32, error) {
	s, err := sourceOf(x)
	if err != nil {
		return 0, err
	}
	with := With{Threads: threads, Random: &Stream{}} // no random bits are drawn
	if err := q.checkCopy(s, d, with); err != nil {
		return 0, err
	}
	o := &output{q: &q, t: &Tensor{Format: q.Format, Direction: d, Shape: []int{x.Rows, x.Cols}}, x: s, with: with}
	amax, _ := o.amax()
	return amax, nil
}

// amax returns the largest magnitude of the elements that o quantizes, NaN aside, and
// whether there is NaN.
func (o *output) amax() (amax float32, hasNaN bool) {
	if !o.q.Hadamard {
		return o.x.amax(o.with.Threads)
	}
	const rows, width = 4 * transposeSize, 1 << 10 // multiples of what is transformed together
	var seen, nan atomic.Uint32
	n, cols := o.t.StoredRows(), o.t.StoredCols()
	parallel.For(ceilDiv(cols, width), 1, o.with.Threads, func(from, to int) {
		w := workers.Get().(*worker)
		for p := from * width; p < min(to*width, cols); p += width {
			for r := 0; r < n; r += rows {
				a, isNaN := w.load(o, r, min(r+rows, n), p, min(p+width, cols)).amaxBits(0, min(rows, n-r))
				atomicMax(&seen, a)
				atomicMax(&nan, uint32(index(isNaN)))
			}
		}
		workers.Put(w)
	})
	return math.Float32frombits(seen.Load()), nan.Load() > 0
}

// load sets dst to stored rows from row on, from position pos on.
func (o *output) load(dst tensor.Dense, row, pos int, scratch *[]float32) {
	if o.t.Direction == Columnwise {
		x := o.x.view(pos, pos+dst.Cols, row, row+dst.Rows)
		if x.isBF16() {
			values := denseOf(dst.Cols, dst.Rows, grow(scratch, dst.Cols*dst.Rows))
			for i := range values.Rows {
				widen(values.Row(i), x.bytes(i, i+1))
			}
			x = denseSource(values)
		}
		transpose(dst, x)
	} else {
		for i := range dst.Rows {
			copy(dst.Row(i), o.x.row(row+i, pos, pos+dst.Cols, scratch))
		}
	}
	for i := 0; o.q.Hadamard && i < dst.Rows; i++ {
		hadamardRow(dst.Row(i))
	}
}

// denseOf is tensor.Of without an allocation.
func denseOf(rows, cols int, data []float32) tensor.Dense {
	return tensor.Dense{Rows: rows, Cols: cols, Stride: cols, Data: data}
}

// scaleWhole stores the one scale of the tensor.
func (o *output) scaleWhole(hasNaN bool) factor {
	if o.with.Inverse != nil {
		inverse := *o.with.Inverse // which may be in the tensor
		o.t.Scales32[0] = 1 / inverse
		return factor{value: inverse}
	}
	return o.q.typed(o.scaleBlock(0, math.Float32bits(o.t.Amax), hasNaN), o.x.isBF16())
}

// prescales reports whether o has a scale for each stored row, and tiles have only parts of
// these rows.
func (p *pipeline) prescales(o *output) bool {
	return o != nil && p.outputs[Columnwise] != nil && o.q.Format.Block == (Shape{1, 0}) && o.q.Format.Scaled() && !o.needsWholeRows()
}

// prescale finds the scales of whole stored rows in one read, rowwise and columnwise. They stay
// in the scratch of w.
func (p *pipeline) prescale(w *worker, threads int) {
	var maxima [2][]uint32
	for d, o := range p.outputs {
		if p.prescales(o) {
			maxima[d] = grow(&w.maxima[d], ceilDiv(o.t.StoredRows(), scaleUnit)*scaleUnit)
			clear(maxima[d])
		}
	}
	const together = 32 // rows whose columns are read while they are in a cache
	rows, cols := p.x.rows, p.x.cols
	var merge sync.Mutex
	parallel.For(ceilDiv(rows, together), max(1, tileBytes/4/together/cols), threads, func(from, to int) {
		w := workers.Get().(*worker)
		columns := grow(&w.amaxes, len(maxima[Columnwise]))
		clear(columns)
		for i := from * together; i < min(to*together, rows); i += together {
			end := min(i+together, rows)
			for r := i; r < end && maxima[Rowwise] != nil; r++ {
				maxima[Rowwise][r] = p.x.maxBits(r, r+1)
			}
			if len(columns) > 0 {
				w.raiseColumns(columns[:cols], p.x.view(i, end, 0, cols))
			}
		}
		merge.Lock()
		for j, a := range columns {
			maxima[Columnwise][j] = max(maxima[Columnwise][j], a)
		}
		merge.Unlock()
		workers.Put(w)
	})
	for d, o := range p.outputs {
		if maxima[d] != nil {
			o.setRowScales(w, maxima[d])
		}
	}
}

// setRowScales stores the scales of stored rows whose amaxes have the given bits, and keeps
// their factors.
func (o *output) setRowScales(w *worker, amaxes []uint32) {
	n := o.t.StoredRows()
	o.finite = maxOf(amaxes[:n]) < exponentMask
	copy(grow(&w.amaxes, len(amaxes)), amaxes)
	byKernel := w.scale(o, n, func(i int) (uint32, bool) {
		rows, cols := o.x.rows, o.x.cols
		if o.t.Direction == Columnwise {
			return o.x.view(0, rows, i, i+1).amaxBits(0, rows)
		}
		return o.x.view(i, i+1, 0, cols).amaxBits(0, 1)
	})
	o.rowFactors = grow(&w.rowFactors[o.t.Direction], n)
	copy(o.rowFactors, w.blocks)
	for i := 0; byKernel && i < n; i++ {
		o.rowFactors[i] = factor{value: w.factors[i]}
	}
	w.storeScales(o, 0, 0, n)
}
