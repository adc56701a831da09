package nn

import "fmt"

// EndForward ends a forward pass for delayed scaling: the scales of input and
// weight are computed anew. Transformer Engine does so at the end of the outermost
// autocast, so call it for every layer after the forward pass of a microbatch, and
// not after one of recomputation or inference. Other recipes have nothing to do.
func (l *Linear) EndForward(s *Scope) { l.updateScales(s, Input, Weight) }

// EndBackward ends a backward pass for delayed scaling: the scale of gradients is
// computed anew.
func (l *Linear) EndBackward(s *Scope) { l.updateScales(s, Grad) }

func (l *Linear) updateScales(s *Scope, operands ...Operand) {
	if !s.Recipe.Delayed.Enabled() {
		return
	}
	for _, o := range operands {
		l.delayed[o].prepare(s.Recipe.Delayed.AmaxHistoryLen)
		l.delayed[o].update(s.Recipe.Delayed, s.fp8Max(o))
	}
}

// State returns the state of delayed scaling, nil where there is none: of input,
// weight and gradient the scale, and then the history of amaxes.
func (l *Linear) State() []float32 { return packScales(l.delayed[:]) }

// SetState takes what State returned, of a layer that goes on where that one was
// between two steps.
func (l *Linear) SetState(state []float32) error {
	if err := unpackScales(l.delayed[:], state); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}
