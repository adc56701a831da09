package train

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A Diverged error is a step whose loss or gradients are not finite. The
// checkpoint before it is kept.
type Diverged struct {
	Step   int     // the first is 1
	Loss   float64 // of the step
	Tensor string  // the first that holds NaN or Inf: a weight, else an operand in the order of the computation; "" where none does
	Amax   float32 // the largest of its finite magnitudes
	NaN    int     // how many of its elements are NaN,
	Inf    int     // and infinite
	Kept   int     // steps of the last checkpoint; -1 where there is none
}

func (e *Diverged) Error() string {
	text := fmt.Sprintf("step %d: the loss is %g", e.Step, e.Loss)
	if finite(e.Loss) {
		text = fmt.Sprintf("step %d: the gradients are not finite", e.Step)
	}
	if e.Tensor != "" {
		text += fmt.Sprintf("; the first tensor that went bad is %s: %d NaN, %d Inf, amax %g of the rest", e.Tensor, e.NaN, e.Inf, e.Amax)
	}
	text += ": start anew with a lower learning rate or a longer warm-up"
	if e.Kept >= 0 {
		text += fmt.Sprintf("; the checkpoint of step %d is kept, and resuming it keeps its rate", e.Kept)
	}
	return text
}

// diagnose finds out where a step went bad. It computes the step again to see
// every operand, which changes the state of the model: the run is over.
func (r *run) diagnose(step int, loss float64) error {
	e := &Diverged{Step: step + 1, Loss: loss, Kept: r.kept}
	for _, p := range r.params {
		if e.look(p.Name, p.Value) {
			return e
		}
	}
	scope := r.scope(step)
	scope.Observe = func(o nn.Observation) {
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

// look reports whether x holds NaN or Inf, and if so takes it as the first.
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
