package nn

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// heldWeight is a weight whose primary values are codes (HoldWeight).
type heldWeight struct {
	codes   *quant.Tensor // rowwise; nil: the weight is not held
	made    recipe.Operand
	largest int  // bytes of the columnwise copy that backward passes make
	settled bool // Weight has the decoded values, and no longer the master ones
}

// HoldWeight makes the weight's rowwise quantized copy its primary values, as
// Transformer Engine's quantized_model_init and Megatron-LM's --fp8-param-gather do.
// It quantizes the value of Weight, the FP32 master of the optimizer, rounded to the
// recipe's activations. Products take these values until the next call, those of high
// precision the decoded ones.
//
// The columnwise copy is not held: a backward pass makes it, from the transposed codes
// where blocks are square and else from the master, and returns it after dgrad. So the
// master must not change between a call and the last backward pass before the next one.
func (l *Linear) HoldWeight(s *Scope) error {
	if w := s.Recipe.Weight.Rowwise; !w.Format.Scaled() || w.Hadamard {
		return fmt.Errorf("%s: the recipe %s does not quantize weights to values that they could be held in", l.Name, s.Recipe.Name)
	}
	if l.held.settled {
		return fmt.Errorf("%s: the master weights were replaced by the held values (SettleWeight)", l.Name)
	}
	t := *s
	t.Recipe.Fprop, t.Recipe.Dgrad = recipe.Quantized, recipe.Quantized
	t.Microbatch, t.Recompute, t.Inference = 0, false, false
	w := l.Weight.Value
	if err := t.checkShape(Weight, w); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	s.Memory.give(l.held.codes)
	l.held, l.weight = heldWeight{}, weightCopies{}
	codes, _, err := l.quantize(&t, Weight, s.rounded(w), true, false)
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	l.held = heldWeight{codes: codes, made: t.quantizers(Weight)}
	return nil
}

// SettleWeight replaces the master values of a held weight by the decoded ones, for a
// model that is not trained any more. Backward passes return an error from then on.
func (l *Linear) SettleWeight(threads int) {
	if l.held.codes == nil || l.held.settled {
		return
	}
	values := l.held.codes.Dequantize(threads)
	for i := range values.Rows {
		copy(l.Weight.Value.Row(i), values.Row(i))
	}
	l.held.settled = true
}

// rowwise returns the operand of fprop.
func (h *heldWeight) rowwise(s *Scope) (*quant.Tensor, error) {
	q := s.quantizers(Weight)
	if reflect.DeepEqual(q.Rowwise, h.made.Rowwise) {
		return h.codes, nil
	}
	return q.Rowwise.Rowwise(h.codes.Dequantize(s.Threads), quant.With{Threads: s.Threads})
}

// heldColumnwise returns the operand of dgrad.
func (l *Linear) heldColumnwise(s *Scope) (*quant.Tensor, error) {
	h, q := &l.held, s.quantizers(Weight)
	switch {
	case h.settled:
		return nil, errors.New("the master weights were replaced by the held values, and the model cannot be trained any more")
	case !reflect.DeepEqual(q.Columnwise, h.made.Columnwise):
		return q.Columnwise.Columnwise(h.codes.Dequantize(s.Threads), quant.With{Threads: s.Threads})
	case h.made.Shared():
		t, err := h.codes.Transpose()
		h.largest = tensorBytes(t)
		if err == nil && s.Observe != nil {
			s.Observe(Observation{l.Name, Weight, quant.Columnwise, recipe.Dgrad, s.rounded(l.Weight.Value), t})
		}
		return t, err
	}
	t := *s // the scope in which HoldWeight quantized: random bits and delayed scales are the same
	t.Microbatch, t.Recompute = 0, true
	_, columnwise, err := l.quantize(&t, Weight, s.rounded(l.Weight.Value), false, true)
	h.largest = tensorBytes(columnwise)
	return columnwise, err
}

// TransientBytes returns the bytes of the columnwise copy that backward passes make of a
// held weight, and return when dgrad is done.
func (l *Linear) TransientBytes() int { return l.held.largest }
