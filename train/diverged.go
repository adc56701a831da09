package train

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A Diverged error reports a step whose loss or gradients are not finite.
type Diverged struct {
	Step   int     // counted from 1
	Loss   float64 // of the step
	Tensor string  // first tensor with NaN or Inf: a weight, or an operand in the order of the computation; "" if none has
	Amax   float32 // largest finite magnitude of Tensor
	NaN    int     // number of NaN elements of Tensor
	Inf    int     // number of infinite elements of Tensor
	Kept   int     // steps of the last checkpoint; -1 if there is none
}

func (e *Diverged) Error() string {
	text := fmt.Sprintf("step %d: the loss is %g", e.Step, e.Loss)
	if finite(e.Loss) {
		text = fmt.Sprintf("step %d: the gradients are not finite", e.Step)
	}
	if e.Tensor != "" {
		text += fmt.Sprintf("; the first tensor with NaN or Inf is %s: %d NaN, %d Inf, amax %g of the others", e.Tensor, e.NaN, e.Inf, e.Amax)
	}
	text += ": start again with a lower learning rate or a longer warm-up"
	if e.Kept >= 0 {
		text += fmt.Sprintf("; the checkpoint of step %d is kept, but a resumed run has the same learning rate", e.Kept)
	}
	return text
}

// diagnose finds the first tensor of a step that is not finite. It repeats the step with an observer,
// which changes the state of the model: the run cannot continue.
func (r *run) diagnose(step int, loss float64) error {
	e := &Diverged{Step: step + 1, Loss: loss, Kept: r.kept}
	for _, p := range r.params {
		if e.look(p.Name, p.Value) {
			return e
		}
	}
	scope := r.scope(step)
	scope.Observer.Operand = func(o nn.Observation) {
		if e.Tensor == "" {
			e.look(fmt.Sprintf("%s (%s)", o.Module, o.Operand), o.Source)
		}
	}
	if _, err := r.gradients(scope); err != nil {
		return err
	}
	for _, p := range r.params {
		if e.Tensor == "" {
			e.look(p.Name+" (gradient)", p.Grad)
		}
	}
	return e
}

// look reports whether x has NaN or Inf elements, and if so records it.
func (e *Diverged) look(name string, x tensor.Dense) bool {
	var amax float32
	var nan, inf int
	for i := range x.Rows {
		for _, v := range x.Row(i) {
			switch a := float32(math.Abs(float64(v))); {
			case v != v:
				nan++
			case a > math.MaxFloat32:
				inf++
			default:
				amax = max(amax, a)
			}
		}
	}
	if nan+inf == 0 {
		return false
	}
	e.Tensor, e.Amax, e.NaN, e.Inf = name, amax, nan, inf
	return true
}
