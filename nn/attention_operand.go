package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// attentionOperands quantizes the operands of attention's products, and keeps the
// state of delayed scaling for them. Where the recipe does not ask for FP8
// attention (recipe.Attention.DotProduct), operands are casts to the recipe's
// activations.
//
// Forward operands (Q, K, V and the probabilities) take the format of the recipe's
// rowwise input, gradients that of its rowwise gradients, both rounded to nearest.
type attentionOperands struct {
	delayed [len(operandNames)]delayedScale
}

// quantizer returns what quantizes an operand of attention under s.
func (s *Scope) attentionQuantizer(o Operand) quant.Quantizer {
	if !s.Recipe.Attention.DotProduct || s.Calibrating {
		return quant.Quantizer{Format: s.Recipe.Activations}
	}
	q := s.Recipe.Input.Rowwise
	if isGradient(o) {
		q = s.Recipe.Grad.Rowwise
	}
	q.Rounding, q.Hadamard = format.NearestEven, false
	return q
}

func isGradient(o Operand) bool { return o == Grad || o == GradOutput || o == GradProbability }

// begin takes in the amax of an operand, of all its heads and sequences, and
// returns it for the calls of quantize that follow: one scale serves the whole
// tensor, as in Transformer Engine. It returns nil where no format needs it. Call
// it once for an operand in a pass.
func (a *attentionOperands) begin(s *Scope, o Operand, x tensor.Dense) *float32 {
	fp8 := s.Recipe.Attention.DotProduct
	if s.Recipe.Delayed.Enabled() && fp8 {
		return a.delayed[o].take(s, o, x)
	}
	if !s.attentionQuantizer(o).Format.NeedsAmax() {
		return nil
	}
	amax := quant.Amax(x, s.Threads)
	return &amax
}

// quantize returns x, all of an operand or the part of one head, with blocks along
// d. whole is what begin returned. The result is into, where that has its shape.
func (a *attentionOperands) quantize(s *Scope, module string, o Operand, d quant.Direction, x tensor.Dense, whole *float32, into *quant.Tensor) (*quant.Tensor, error) {
	q := s.attentionQuantizer(o)
	with := quant.With{Threads: s.Threads}
	if into != nil && into.Rows() == x.Rows && into.Cols() == x.Cols {
		with.Into = into
	}
	if q.Format.NeedsAmax() {
		if s.Recipe.Delayed.Enabled() {
			with.Inverse = whole
		} else {
			with.Amax = whole
		}
	}
	quantize := q.Rowwise
	if d == quant.Columnwise {
		quantize = q.Columnwise
	}
	t, err := quantize(x, with)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", module, o, err)
	}
	if s.Observe != nil && s.Recipe.Attention.DotProduct {
		s.Observe(Observation{Module: module, Operand: o, Direction: d, Source: x, Quantized: t})
	}
	return t, nil
}

// beginEach is begin of an operand that is not there as a whole: the scale of its
// delayed scaling, and nil under other recipes, whose scales are those of the
// parts. What endEach is told of the amaxes of the parts goes into the history.
func (a *attentionOperands) beginEach(s *Scope, o Operand) *float32 {
	if !s.Recipe.Delayed.Enabled() || !s.Recipe.Attention.DotProduct {
		return nil
	}
	d := &a.delayed[o]
	d.prepare(s.Recipe.Delayed.AmaxHistoryLen)
	scale := d.scale
	return &scale
}

func (a *attentionOperands) endEach(s *Scope, o Operand, amax float32) {
	if s.Recipe.Delayed.Enabled() && s.Recipe.Attention.DotProduct {
		a.delayed[o].observe(amax)
	}
}

// endForward and endBackward end a pass for delayed scaling, as those of Linear do.
func (a *attentionOperands) endForward(s *Scope) { a.update(s, false) }

func (a *attentionOperands) endBackward(s *Scope) { a.update(s, true) }

func (a *attentionOperands) update(s *Scope, gradients bool) {
	if !s.Recipe.Delayed.Enabled() || !s.Recipe.Attention.DotProduct {
		return
	}
	for o := Query; int(o) < len(a.delayed); o++ {
		if isGradient(o) == gradients {
			a.delayed[o].prepare(s.Recipe.Delayed.AmaxHistoryLen)
			a.delayed[o].update(s.Recipe.Delayed, s.fp8Max(o))
		}
	}
}

// fp8Max returns the largest value of an operand's elements.
func (s *Scope) fp8Max(o Operand) float32 {
	if isGradient(o) {
		return s.Recipe.Grad.Rowwise.Format.Element.Max()
	}
	if o == Weight {
		return s.Recipe.Weight.Rowwise.Format.Element.Max()
	}
	return s.Recipe.Input.Rowwise.Format.Element.Max()
}
