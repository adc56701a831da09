package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// QuantizeRows quantizes x, rows of the master weight from row first on, as HoldWeight quantizes the
// whole weight: the copies of all rows, one after another, are those of the whole (quant.Concat). x
// begins at a multiple of recipe.Recipe.ShardRows. amax is the largest magnitude of the whole
// weight, rounded to the recipe's Activations. columnwise is nil if it is the transpose of rowwise
// (recipe.Operand.Shared).
//
// Under delayed scaling, QuantizeRows adds amax to the history: call it once per step.
func (l *Linear) QuantizeRows(s *Scope, x tensor.Dense, first int, amax float32) (rowwise, columnwise *quant.Tensor, err error) {
	t := s.holding()
	if err := t.checkShape(Weight, l.Weight.Value); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	var inverse *float32
	if d := &l.delayed[Weight]; t.Recipe.Delayed.Enabled() {
		d.prepare(t.Recipe.Delayed.AmaxHistoryLen)
		d.observe(amax)
		d.used = d.scale
		inverse = &d.used
	}
	with := func(q quant.Quantizer, d quant.Direction) quant.Copy {
		w := quant.With{Threads: s.Threads, FirstRow: first}
		switch {
		case inverse != nil && q.Format.PerTensor():
			w.Inverse = inverse
		case q.Format.NeedsAmax():
			w.Amax = &amax
		}
		if q.Rounding == format.Stochastic {
			w.Random = s.Random.stream(l.Name, Weight, d)
		}
		return quant.Copy{Quantizer: q, With: w}
	}
	q := t.quantizers(Weight)
	x = t.rounded(x)
	if q.Shared() {
		c := with(q.Rowwise, quant.Rowwise)
		rowwise, err = c.Quantizer.Rowwise(x, c.With)
	} else {
		rowwise, columnwise, err = quant.RowwiseColumnwise(x, with(q.Rowwise, quant.Rowwise), with(q.Columnwise, quant.Columnwise))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	return rowwise, columnwise, nil
}

// holding returns the scope in which weights that are held are quantized.
func (s *Scope) holding() Scope {
	t := *s
	t.Recipe.HighPrecision[recipe.Fprop], t.Recipe.HighPrecision[recipe.Dgrad] = false, false
	t.Recompute, t.Inference = false, false
	return t
}

// HoldCopies makes quantized copies the primary values of the weight, like HoldWeight, but without
// master weights. fetch returns the copies that QuantizeRows made of all rows; the layer calls it
// once, before it uses them.
func (l *Linear) HoldCopies(s *Scope, fetch func() (rowwise, columnwise *quant.Tensor, err error)) {
	t := s.holding()
	l.weight = weightCopies{}
	l.held = heldWeight{fetch: fetch, quantizers: t.quantizers(Weight)}
}

// FetchCopies lets the layer fetch the copies of HoldCopies now.
func (l *Linear) FetchCopies() error {
	_, err := l.holds()
	return err
}

// holds reports whether the weight is held, and fetches its copies.
func (l *Linear) holds() (bool, error) {
	h := &l.held
	if h.fetch != nil {
		var err error
		if h.codes, h.columnwise, err = h.fetch(); err != nil {
			return false, fmt.Errorf("%s: %w", l.Name, err)
		}
		h.fetch = nil
	}
	return h.codes != nil, nil
}

// ReleaseMasters frees the master weights. The layer needs HoldCopies before it computes; the values
// of its parameters are empty until SettleWeight.
func (l *Linear) ReleaseMasters() {
	l.Weight.Value.Data = nil
	for _, p := range l.parts {
		if p.Value.Cols == l.in && p.Value.Rows > 0 {
			p.Value.Data = nil
		}
	}
}

// restoreMasters allocates the master weights that ReleaseMasters freed.
func (l *Linear) restoreMasters() {
	if l.Weight.Value.Data != nil {
		return
	}
	l.Weight.Value = tensor.New(l.out, l.in)
	row := 0
	for _, p := range l.parts {
		if p.Value.Data == nil {
			p.Value = l.Weight.Value.View(row, row+p.Value.Rows, 0, l.in)
			row += p.Value.Rows
		}
	}
}
