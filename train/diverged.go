package train

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A Diverged error reports a step whose loss or gradients are not finite.
type Diverged struct {
	Step int     // counted from 1
	Loss float64 // of the step
	finding
	Rank  int // whose Tensor it is
	Ranks int // of the job
	Kept  int // steps of the last checkpoint; -1 if there is none
}

// A finding is a tensor that is not finite.
type finding struct {
	Tensor string  // first tensor with NaN or Inf: a weight, or an operand in the order of the computation; "" if none has
	Amax   float32 // largest finite magnitude of Tensor
	NaN    int     // number of NaN elements of Tensor
	Inf    int     // number of infinite elements of Tensor
}

func (e *Diverged) Error() string {
	text := fmt.Sprintf("step %d: the loss is %g", e.Step, e.Loss)
	if finite(e.Loss) {
		text = fmt.Sprintf("step %d: the gradients are not finite", e.Step)
	}
	if e.Tensor != "" {
		on := ""
		if e.Ranks > 1 {
			on = fmt.Sprintf(" on rank %d", e.Rank)
		}
		text += fmt.Sprintf("; the first tensor with NaN or Inf%s is %s: %d NaN, %d Inf, amax %g of the others", on, e.Tensor, e.NaN, e.Inf,
			e.Amax)
	}
	text += ": start again with a lower learning rate or a longer warm-up"
	if e.Kept >= 0 {
		text += fmt.Sprintf("; the checkpoint of step %d is kept, but a resumed run has the same learning rate", e.Kept)
	}
	return text
}

// diagnose finds the first tensor of a step that is not finite, on the first rank that has one. It
// repeats the step with an observer, which changes the state of the model: the run cannot continue.
func (r *run) diagnose(step int, loss float64) error {
	e := &Diverged{Step: step + 1, Loss: loss, Ranks: r.Parallel.ranks(), Kept: r.kept}
	err := r.Parallel.agree(r.search(e))
	if err != nil || r.Parallel.ranks() == 1 {
		if err == nil {
			err = e
		}
		return err
	}
	own, err := json.Marshal(e.finding)
	if err != nil {
		return err
	}
	all, err := r.Parallel.group(trafficControl).GatherAll(own)
	if err != nil {
		return err
	}
	e.finding = finding{}
	for rank, text := range all {
		if e.Tensor != "" {
			break
		}
		if err := json.Unmarshal(text, &e.finding); err != nil {
			return err
		}
		e.Rank = rank
	}
	return &comm.AgreedError{Err: e}
}

// search looks for a tensor that is not finite among those of this rank.
func (r *run) search(e *Diverged) error {
	for _, p := range r.own {
		if e.Tensor == "" {
			e.look(p.Name, p.Value)
		}
	}
	if found, err := r.Parallel.any(e.Tensor != ""); found || err != nil {
		return err
	}
	scope := r.scope(e.Step - 1)
	scope.ReduceAmax = nil
	scope.Observer.Operand = func(o nn.Observation) {
		if e.Tensor == "" {
			e.look(fmt.Sprintf("%s (%s)", o.Module, o.Operand), o.Source)
		}
	}
	r.clearGradients()
	if _, err := r.backward(scope, false); err != nil {
		return err
	}
	for _, p := range r.params {
		if e.Tensor == "" {
			e.look(p.Name+" (gradient)", p.Grad)
		}
	}
	return nil
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
