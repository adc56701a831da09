package nn

import "fmt"

// EndForward ends a forward pass for delayed scaling: it computes the scales of input and weight
// for the next one. Transformer Engine does so at the end of the outermost autocast; call it for
// every layer after the forward pass of a microbatch, but not after recomputation or inference.
// Other recipes have no scales to compute.
func (l *Linear) EndForward(s *Scope) { l.updateScales(s, Input, Weight) }

// EndBackward ends a backward pass for delayed scaling: it computes the scale of gradients for
// the next one.
func (l *Linear) EndBackward(s *Scope) { l.updateScales(s, Grad) }

func (l *Linear) updateScales(s *Scope, operands ...Operand) {
	if !s.Recipe.Delayed.Enabled() {
		return
	}
	for _, o := range operands {
		l.delayed[o].prepare(s.Recipe.Delayed.AmaxHistoryLen)
		l.delayed[o].update(s.Recipe.Delayed, s.elementMax(o))
	}
}

// Amaxes returns the amaxes that EndForward or, if gradients is set, EndBackward will use. A job of
// several ranks replaces them with the maxima over the ranks first (ReduceAmaxes).
func (l *Linear) Amaxes(s *Scope, gradients bool) []*float32 {
	return currentAmaxes(s, l.delayed[:], func(o int) bool { return Operand(o).isGradient() == gradients })
}

// ReduceAmaxes replaces amaxes with their maxima over the ranks (Scope.ReduceAmax).
func ReduceAmaxes(s *Scope, amaxes []*float32) error {
	if s.ReduceAmax == nil || len(amaxes) == 0 {
		return nil
	}
	values := make([]float32, len(amaxes))
	for i, a := range amaxes {
		values[i] = *a
	}
	if err := s.ReduceAmax(values); err != nil {
		return err
	}
	for i, a := range amaxes {
		*a = values[i]
	}
	return nil
}

// State returns the state of delayed scaling, nil if there is none: for input, weight and
// gradient the scale, then the amax history.
func (l *Linear) State() []float32 { return packScales(l.delayed[:]) }

// SetState restores what State returned between two steps.
func (l *Linear) SetState(state []float32) error {
	if err := unpackScales(l.delayed[:], state); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}
