package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A delayedScale is the state of delayed scaling of one operand: the encode scale
// in force, and the amaxes of the steps before. History[0] collects the amax of
// the current one.
type delayedScale struct {
	scale   float32
	history []float32
	used    float32 // the scale of the last pass that was no recomputation
}

// prepare gives a state that is not there yet its first values, scale 1 and a
// history of zeros, and fits the history to its length: a longer one is cut, a
// shorter one filled with zeros.
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

// observe takes in the amax of a tensor.
func (d *delayedScale) observe(amax float32) { d.history[0] = max(d.history[0], amax) }

// take takes in the amax of x and returns the scale to quantize it with. A
// recomputation takes the scale of the pass that it repeats, and its amax is known;
// inference leaves no trace.
func (d *delayedScale) take(s *Scope, o Operand, x tensor.Dense) *float32 {
	d.prepare(s.Recipe.Delayed.AmaxHistoryLen)
	scale := d.scale
	switch {
	case s.Inference:
	case s.Recompute && !isGradient(o):
		scale = d.used
	default:
		d.observe(quant.Amax(x, s.Threads))
		d.used = scale
	}
	return &scale
}

// update computes the scale of the next step from the history, and moves on. It
// is the fused kernel of Transformer Engine (delayed_scaling.cu), which leaves the
// history as it is after a step without an amax; what the largest one is taken of
// holds the amax that falls out of the history with this update. largest is the
// element format's.
func (d *delayedScale) update(r recipe.Delayed, largest float32) {
	last, amax := d.history[0], float32(0)
	if last != 0 {
		n := len(d.history)
		for i := range n {
			a := last
			if i < n-1 {
				a = d.history[i+1]
			}
			if a > amax { // NaN is passed over
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
		d.scale = min(float32(math.Ldexp(float64(largest), -r.Margin))/amax, math.MaxFloat32)
	}
}

// state returns the state as numbers: the scale, then the history.
func (d *delayedScale) state() []float32 { return append([]float32{d.scale}, d.history...) }

// setState takes what state returned.
func (d *delayedScale) setState(v []float32) error {
	if len(v) < 2 || !(v[0] > 0 && v[0] <= math.MaxFloat32) {
		return fmt.Errorf("state of delayed scaling: want a positive scale and a history after it, have %d numbers", len(v))
	}
	d.scale, d.used = v[0], v[0]
	d.history = append([]float32(nil), v[1:]...)
	return nil
}
