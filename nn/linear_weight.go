package nn

import (
	"errors"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// weightCopies are the quantized copies of a weight and the quantizers that made them.
// Microbatches of a step share them.
type weightCopies struct {
	rowwise, columnwise *quant.Tensor // for fprop and dgrad
	quantizers          recipe.Operand
}

// forwardWeight returns the weight operand of fprop. Unless the weight is held, it quantizes
// the rowwise copy, and the columnwise one if a backward pass follows.
func (l *Linear) forwardWeight(s *Scope, backward bool) (*quant.Tensor, error) {
	if held, err := l.holds(); held || err != nil {
		if err != nil {
			return nil, err
		}
		return l.held.rowwise(s)
	}
	c, q := &l.weight, s.quantizers(Weight)
	usable := c.rowwise != nil && (c.columnwise != nil || !backward) && c.quantizers == q
	if usable && (s.Recompute || s.ReuseWeights) {
		return c.rowwise, nil
	}
	w := l.Weight.Value
	if err := s.checkShape(Weight, w); err != nil {
		return nil, err
	}
	s.discard(c.rowwise, c.columnwise)
	*c = weightCopies{}
	if q.Rowwise.Format.Scaled() || q.Columnwise.Format.Scaled() || s.Recipe.Delayed.Enabled() {
		w = s.rounded(w)
	} // otherwise the copies are casts, which round in the same way
	row, col, err := l.quantize(s, Weight, w, true, backward)
	if err != nil {
		return nil, err
	}
	*c = weightCopies{row, col, q}
	return row, nil
}

// backwardWeight returns the weight operand of dgrad. transient reports that it is for this
// product only.
func (l *Linear) backwardWeight(s *Scope) (columnwise *quant.Tensor, transient bool, err error) {
	if l.held.codes != nil {
		columnwise, err = l.heldColumnwise(s)
		return columnwise, columnwise != l.held.columnwise, err
	}
	if l.weight.columnwise == nil {
		return nil, false, errors.New("the columnwise copy of the weight is gone: an inference pass without ReuseWeights came between the " +
			"forward and the backward pass")
	}
	return l.weight.columnwise, false, nil
}

// rounded returns w rounded to the recipe's Activations: w itself if these are F32, otherwise a
// copy in a pool buffer that is valid until the next call.
func (s *Scope) rounded(w tensor.Dense) tensor.Dense {
	if s.Recipe.Activations.Element == format.F32 {
		return w
	}
	x := s.Pool.scratch(w.Rows, w.Cols)
	parallel.For(w.Rows, parallel.RowGrain(w.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			copy(x.Row(i), w.Row(i))
			roundBF16(x.Row(i))
		}
	})
	return x
}
