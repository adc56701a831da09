package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A delayedScale is the state of delayed scaling of one operand: the current encode scale and
// the amax history. history[0] collects the amax of the current step.
type delayedScale struct {
	scale   float32
	history []float32
	used    float32 // scale of the last pass that was not a recomputation
}

// prepare initializes a zero state to scale 1 and a history of zeros, and changes the length of
// the history: it truncates a longer one and extends a shorter one with zeros.
func (d *delayedScale) prepare(length int) {
	if d.scale == 0 {
		d.scale, d.used = 1, 1
	}
	if len(d.history) != length {
		h := make([]float32, length)
		copy(h, d.history)
		d.history = h
	}
}

// currentAmaxes returns the amaxes of the current step of the states that belong to a pass; none
// without delayed scaling.
func currentAmaxes(s *Scope, scales []delayedScale, belongs func(i int) bool) []*float32 {
	var amaxes []*float32
	for i := range scales {
		if s.Recipe.Delayed.Enabled() && belongs(i) {
			scales[i].prepare(s.Recipe.Delayed.AmaxHistoryLen)
			amaxes = append(amaxes, &scales[i].history[0])
		}
	}
	return amaxes
}

// observe adds an amax to the current step.
func (d *delayedScale) observe(amax float32) { d.history[0] = max(d.history[0], amax) }

// take returns the encode scale for x and adds its amax to the history. A recomputation takes
// the scale of the pass that it repeats and adds nothing; inference adds nothing.
func (d *delayedScale) take(s *Scope, o Operand, x tensor.Dense) *float32 {
	d.prepare(s.Recipe.Delayed.AmaxHistoryLen)
	scale := d.scale
	switch {
	case s.Inference:
	case s.Recompute && !o.isGradient():
		scale = d.used
	default:
		d.observe(quant.Amax(x, s.Threads))
		d.used = scale
	}
	return &scale
}

// update computes the scale of the next step from the history and rolls the history. It follows
// Transformer Engine's fused kernel (delayed_scaling.cu): a step without an amax leaves the
// history unchanged, and the maximum includes the amax that this update drops. elementMax is the
// largest value of the element format.
func (d *delayedScale) update(r recipe.Delayed, elementMax float32) {
	last, amax := d.history[0], float32(0)
	if last != 0 {
		n := len(d.history)
		for i := range n {
			a := last
			if i < n-1 {
				a = d.history[i+1]
			}
			if a > amax { // ignores NaN
				amax = a
			}
			d.history[i] = a
		}
		d.history[0] = 0
	}
	if r.AmaxComputeAlgorithm == recipe.MostRecent {
		amax = last
	}
	if amax > 0 && amax <= math.MaxFloat32 {
		d.scale = min(float32(math.Ldexp(float64(elementMax), -r.Margin))/amax, math.MaxFloat32)
	}
}

// elementMax returns the largest value of the element format of an operand.
func (s *Scope) elementMax(o Operand) float32 {
	switch {
	case o.isGradient():
		return s.Recipe.Grad.Rowwise.Format.Element.Max()
	case o == Weight:
		return s.Recipe.Weight.Rowwise.Format.Element.Max()
	}
	return s.Recipe.Input.Rowwise.Format.Element.Max()
}

// packScales returns the states as numbers: for each the scale, then the history. It returns nil
// if no state was used.
func packScales(scales []delayedScale) []float32 {
	length := 0
	for _, d := range scales {
		length = max(length, len(d.history))
	}
	if length == 0 {
		return nil
	}
	var packed []float32
	for _, d := range scales {
		d.prepare(length)
		packed = append(append(packed, d.scale), d.history...)
	}
	return packed
}

// unpackScales restores what packScales returned for the same number of states.
func unpackScales(scales []delayedScale, packed []float32) error {
	each := len(packed) / len(scales)
	if len(packed)%len(scales) != 0 || each == 1 {
		return fmt.Errorf("state of delayed scaling: got %d numbers, want %d scales, each with a history", len(packed), len(scales))
	}
	for i := range scales {
		if each == 0 {
			scales[i] = delayedScale{}
			continue
		}
		d := packed[i*each : (i+1)*each]
		if !(d[0] > 0 && d[0] <= math.MaxFloat32) {
			return fmt.Errorf("state of delayed scaling: scale is %g, want a positive finite number", d[0])
		}
		scales[i] = delayedScale{scale: d[0], history: append([]float32(nil), d[1:]...), used: d[0]}
	}
	return nil
}
