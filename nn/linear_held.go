package nn

import (
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// heldWeight is a weight whose primary values are quantized (HoldWeight).
type heldWeight struct {
	codes      *quant.Tensor // rowwise; nil: the weight is not held
	columnwise *quant.Tensor // of HoldCopies; nil: backward passes make it
	fetch      func() (rowwise, columnwise *quant.Tensor, err error)
	quantizers recipe.Operand
	transient  int  // bytes of the columnwise copy that backward passes make
	settled    bool // Weight holds the decoded values, not the master weights
}

// HoldWeight makes the rowwise quantized copy the primary values of the weight, like Transformer
// Engine's quantized_model_init and Megatron-LM's --fp8-param-gather. It quantizes Weight.Value,
// the FP32 master weights, rounded to the recipe's Activations. Products use these values until
// the next call; high-precision products use the decoded ones.
//
// The columnwise copy is not held. A backward pass makes it for dgrad: by transposing the codes
// if blocks are square, otherwise from the master weights. The master weights must therefore not
// change between a call and the last backward pass before the next call.
func (l *Linear) HoldWeight(s *Scope) error {
	if !s.Recipe.HoldsWeights() {
		return fmt.Errorf("%s: the recipe %s does not quantize weights to values that can be held", l.Name, s.Recipe.Name)
	}
	if l.held.settled {
		return fmt.Errorf("%s: %w", l.Name, errSettled)
	}
	t := s.holding()
	w := l.Weight.Value
	if err := t.checkShape(Weight, w); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	s.Pool.put(l.held.codes)
	l.held, l.weight = heldWeight{}, weightCopies{}
	codes, _, err := l.quantize(&t, Weight, s.rounded(w), true, false)
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	l.held = heldWeight{codes: codes, quantizers: t.quantizers(Weight)}
	return nil
}

var errSettled = errors.New("the decoded values replaced the master weights: the model cannot be trained any more")

// SettleWeight replaces the master values of a held weight with the decoded ones, at the end of
// training. Later backward passes return an error.
func (l *Linear) SettleWeight(threads int) {
	if l.held.codes == nil || l.held.settled {
		return
	}
	values := l.held.codes.Dequantize(threads)
	l.restoreMasters()
	copyRows(l.Weight.Value, values)
	l.held.settled = true
}

// TransientBytes returns the bytes of the columnwise copy that a backward pass makes of a held
// weight for dgrad.
func (l *Linear) TransientBytes() int { return l.held.transient }

// rowwise returns the operand of fprop.
func (h *heldWeight) rowwise(s *Scope) (*quant.Tensor, error) {
	q := s.quantizers(Weight)
	if q.Rowwise == h.quantizers.Rowwise {
		return h.codes, nil
	}
	return q.Rowwise.Rowwise(h.codes.Dequantize(s.Threads), quant.With{Threads: s.Threads})
}

// heldColumnwise returns the operand of dgrad.
func (l *Linear) heldColumnwise(s *Scope) (*quant.Tensor, error) {
	h, q := &l.held, s.quantizers(Weight)
	switch {
	case h.columnwise != nil && q.Columnwise == h.quantizers.Columnwise:
		return h.columnwise, nil
	case h.settled:
		return nil, errSettled
	case q.Columnwise != h.quantizers.Columnwise:
		return q.Columnwise.Columnwise(h.codes.Dequantize(s.Threads), quant.With{Threads: s.Threads})
	case h.quantizers.Shared():
		t, err := h.codes.Transpose()
		h.transient = tensorBytes(t)
		if err == nil && s.Observer.Operand != nil {
			s.Observer.Operand(Observation{l.Name, Weight, quant.Columnwise, recipe.Dgrad, s.rounded(l.Weight.Value), t})
		}
		return t, err
	}
	t := *s // random bits and delayed scales are those of HoldWeight
	t.Recompute = true
	_, columnwise, err := l.quantize(&t, Weight, s.rounded(l.Weight.Value), false, true)
	h.transient = tensorBytes(columnwise)
	return columnwise, err
}

func tensorBytes(t *quant.Tensor) int {
	if t == nil {
		return 0
	}
	return len(t.Codes) + len(t.Scales) + 4*len(t.Scales32)
}
