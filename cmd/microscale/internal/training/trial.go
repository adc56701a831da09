package training

import (
	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// Operands are observed in about observedSteps steps of a run, observedEvery or more
// apart, because that takes as long as a step.
const observedSteps, observedEvery = 12, 4

// A trial collects the losses, times and operands of a run.
type trial struct {
	watcher    *watcher // of the operands
	losses     report.Recipe
	steps      int        // of the whole run
	every      int        // distance of observed steps
	plain, all bench.Laps // steps without observation, and all steps
	tokens     int
}

func newTrial(r recipe.Recipe, steps int) *trial {
	return &trial{
		watcher: newWatcher(r), losses: report.Recipe{Name: r.Name, Doc: r.Doc, TrainLoss: nan, ValidationLoss: nan},
		steps: steps, every: max(observedEvery, (steps+observedSteps-1)/observedSteps),
	}
}

// start starts the time of the next step.
func (t *trial) start() {
	t.plain.Start()
	t.all.Start()
}

// observed reports whether the operands of a step are observed.
func (t *trial) observed(step int) bool { return (step-1)%t.every == 0 || step == t.steps }

// observer returns the observer of a step.
func (t *trial) observer(step int) (o nn.Observer) {
	if t.observed(step) {
		o.Operand = func(o nn.Observation) { t.watcher.observe(step, o) }
	}
	return o
}

// progress records a step or a validation.
func (t *trial) progress(e train.Event) {
	switch e.Kind {
	case train.Step:
		t.losses.Steps = e.Step
		t.tokens += e.Tokens
		t.losses.Train = append(t.losses.Train, report.Point{Step: e.Step, Loss: e.Loss})
		t.all.End(e.Elapsed)
		if !t.observed(e.Step) {
			t.plain.End(e.Elapsed)
		}
		t.plain.Start()
	case train.Validation:
		t.losses.Validation = append(t.losses.Validation, report.Point{Step: e.Step, Loss: e.Loss})
		t.start() // a step excludes validation
	}
}

// row returns the row of the report, without the final losses and the rate.
func (t *trial) row() report.Recipe {
	r, laps := t.losses, &t.plain
	if laps.Len() == 0 {
		laps = &t.all
	}
	times := laps.Sample()
	r.SecondsPerStep, r.Busy = times.Median, times.Busy
	r.Operands, r.Scales = t.watcher.rows()
	return r
}
