package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// attentionOperands quantizes the operands of attention's products, and holds their state of
// delayed scaling. Without FP8 attention (recipe.Attention.DotProduct) operands are casts to the
// recipe's Activations.
//
// Operands of the forward pass use the format of the recipe's rowwise input, gradients that of its
// rowwise gradients. Both round to nearest even.
type attentionOperands struct {
	delayed [operands]delayedScale
}

// attentionQuantizer returns the quantizer of an operand of attention under s.
func (s *Scope) attentionQuantizer(o Operand) quant.Quantizer {
	if !s.Recipe.Attention.DotProduct || s.Calibrating {
		return quant.Quantizer{Format: s.Recipe.Activations}
	}
	q := s.Recipe.Input.Rowwise
	if o.isGradient() {
		q = s.Recipe.Grad.Rowwise
	}
	q.Rounding, q.Hadamard = format.NearestEven, false
	return q
}

// delayedAttention reports whether attention uses delayed scaling.
func (s *Scope) delayedAttention() bool {
	return s.Recipe.Delayed.Enabled() && s.Recipe.Attention.DotProduct
}

// begin prepares an operand x of all heads and sequences: all parts share its scale, as in
// Transformer Engine, and so do the heads of all ranks. It returns the encode scale of delayed
// scaling, the amax for other formats that need it, or nil. Call it once per operand and pass.
func (a *attentionOperands) begin(s *Scope, o Operand, x tensor.Dense) (*float32, error) {
	if s.delayedAttention() {
		return a.delayed[o].take(s, o, x), nil
	}
	if !s.attentionQuantizer(o).Format.NeedsAmax() {
		return nil, nil
	}
	amax := []float32{quant.Amax(x, s.Threads)}
	if o != probability { // whose amax is known
		if err := s.maxRanks(TrafficAmaxes, amax); err != nil {
			return nil, err
		}
	}
	return &amax[0], nil
}

// quantize quantizes x, an operand or the part of it that belongs to one head, with blocks along
// d. whole is what begin returned. into is nil or the destination.
func (a *attentionOperands) quantize(s *Scope, module string, o Operand, d quant.Direction, x tensor.Dense, whole *float32,
	into *quant.Tensor) (*quant.Tensor, error) {
	q := s.attentionQuantizer(o)
	with := quant.With{Threads: s.Threads, Into: into}
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
	if s.Observer.Operand != nil && s.Recipe.Attention.DotProduct {
		s.Observer.Operand(Observation{Module: module, Operand: o, Direction: d, Source: x, Quantized: t})
	}
	return t, nil
}

// beginParts is begin for an operand that exists only in parts: it returns the encode scale of
// delayed scaling, or nil for recipes that scale each part by itself. endParts adds the maximum
// amax of the parts to the history.
func (a *attentionOperands) beginParts(s *Scope, o Operand) *float32 {
	if !s.delayedAttention() {
		return nil
	}
	d := &a.delayed[o]
	d.prepare(s.Recipe.Delayed.AmaxHistoryLen)
	scale := d.scale
	return &scale
}

func (a *attentionOperands) endParts(s *Scope, o Operand, amax float32) {
	if s.delayedAttention() {
		a.delayed[o].observe(amax)
	}
}

// update computes the scales of gradients or of the other operands for the next pass.
func (a *attentionOperands) update(s *Scope, gradients bool) {
	if !s.delayedAttention() {
		return
	}
	for o := query; int(o) < len(a.delayed); o++ {
		if o.isGradient() == gradients {
			a.delayed[o].prepare(s.Recipe.Delayed.AmaxHistoryLen)
			a.delayed[o].update(s.Recipe.Delayed, s.elementMax(o))
		}
	}
}
