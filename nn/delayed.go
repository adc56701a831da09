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

// packScales returns the states as numbers, nil where none has been in use: of
// each the scale, then the history.
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

// unpackScales takes what packScales returned for as many states.
func unpackScales(scales []delayedScale, packed []float32) error {
	each := len(packed) / len(scales)
	if len(packed)%len(scales) != 0 || each == 1 {
		return fmt.Errorf("state of delayed scaling: %d numbers are not %d scales, each with a history", len(packed), len(scales))
	}
	for i := range scales {
		if each == 0 {
			scales[i] = delayedScale{}
			continue
		}
		d := packed[i*each : (i+1)*each]
		if !(d[0] > 0 && d[0] <= math.MaxFloat32) {
			return fmt.Errorf("state of delayed scaling: %g is no scale", d[0])
		}
		scales[i] = delayedScale{scale: d[0], history: append([]float32(nil), d[1:]...), used: d[0]}
	}
	return nil
}
