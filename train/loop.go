package train

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/nn"
)

// Hooks are called while a run goes on, from its goroutine. Each may be nil.
type Hooks struct {
	// Step is called when a step is done.
	Step func(StepEvent)
	// Validated is called after each validation.
	Validated func(ValidationPoint)
	// Resumed is called with a line that says where a run with Config.Resume begins.
	Resumed func(line string)
	// Observe is called for each operand that is quantized, on the steps that
	// Observed reports true for, and on all where that is nil.
	Observe  func(step int, o nn.Observation)
	Observed func(step int) bool
}

// A StepEvent is a step that is done.
type StepEvent struct {
	Step, Steps  int     // the first is 1
	Loss         float64 // nats per token, before the step
	GradientNorm float64 // before clipping
	LearningRate float64
	Tokens       int           // read in this step
	Elapsed      time.Duration // of this step
}

// A ValidationPoint is the loss on the validation text after some steps.
type ValidationPoint struct {
	Step int     `json:"step"`
	Loss float64 `json:"loss"` // nats per token
}

// A Result is a run that is done.
type Result struct {
	Model      *llama.Model
	TrainLoss  []float64         // of each step
	Validation []ValidationPoint // the last is after the last step
	Tokens     int               // read in training
	Seconds    float64           // of the steps, those before a resumption included
	Parameters int

	Memory Memory // at the peak of the last step; of a resumed run that has no step left, without copies and activations
}

// Memory is what a run holds at the peak of a step, between the forward and the
// backward pass of a microbatch, in bytes. The matrices that pass from one module to the
// next are not among it, nor is what the garbage collector has not freed yet.
type Memory struct {
	Masters   int `json:"masters"`   // FP32 weights, which the optimizer updates and which norms and the embedding compute with
	Gradients int `json:"gradients"` // FP32
	Moments   int `json:"moments"`   // FP32, the two of AdamW
	llama.Memory
}

// Total returns the sum of all.
func (m Memory) Total() int { return m.Masters + m.Gradients + m.Moments + m.Memory.Total() }

// memory returns what the run holds.
func (r *run) memory() Memory {
	m := Memory{Memory: r.model.Memory()}
	for i, p := range r.params {
		m.Masters += 4 * p.Value.Rows * p.Value.Cols
		m.Gradients += 4 * p.Grad.Rows * p.Grad.Cols
		m.Moments += 4 * (len(r.moments[i].m) + len(r.moments[i].v))
	}
	return m
}

// SecondsPerStep returns the mean time of a step.
func (r *Result) SecondsPerStep() float64 { return r.Seconds / float64(len(r.TrainLoss)) }

// TokensPerSecond returns the rate of training.
func (r *Result) TokensPerSecond() float64 { return float64(r.Tokens) / r.Seconds }

// FinalLoss returns the training and the validation loss at the end.
func (r *Result) FinalLoss() (training, validation float64) {
	return r.TrainLoss[len(r.TrainLoss)-1], r.Validation[len(r.Validation)-1].Loss
}

// An Interrupted error is a run that ended early because its context did.
type Interrupted struct {
	Step int    // steps done
	Out  string // where the checkpoint is; "" where there is none
}

func (e *Interrupted) Error() string {
	if e.Out == "" {
		return fmt.Sprintf("interrupted after %d steps: nothing was written", e.Step)
	}
	return fmt.Sprintf("interrupted after %d steps: the checkpoint is in %s", e.Step, e.Out)
}

func (e *Interrupted) Unwrap() error { return context.Canceled }

// run is a run that goes on.
type run struct {
	Config
	hooks   Hooks
	model   *llama.Model
	params  []*nn.Param // with the FP32 master weights
	moments []moments
	state   state
	kept    int // steps of the last checkpoint; -1: there is none
}

// Run trains a model. Where Out is set, it is a directory that is new or empty,
// or that has the checkpoint to resume from; a checkpoint is written when ctx
// ends, and the error is then an *Interrupted. A loss that is not finite is a
// *Diverged. A run that needs more memory than the machine has available is an
// error, before anything is written.
func Run(ctx context.Context, c Config, hooks Hooks) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.Corpus.Admit(c.Sequence); err != nil {
		return nil, err
	}
	if err := c.CheckMemory(); err != nil {
		return nil, err
	}
	model, err := llama.New(c.Model, c.Options, c.Seed)
	if err != nil {
		return nil, err
	}
	r := &run{Config: c, hooks: hooks, model: model, params: model.Params()}
	r.moments = newMoments(r.params)
	release, err := r.claim()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.hold(); err != nil {
		r.withdraw(err)
		return nil, err
	}
	for {
		if err := r.validate(ctx); err != nil {
			return nil, err
		}
		if r.state.Step == c.Steps {
			break
		}
		if err := r.step(); err != nil {
			r.withdraw(err)
			return nil, err
		}
		if err := r.keep(ctx); err != nil {
			return nil, err
		}
	}
	if c.HoldQuantized {
		model.SettleWeights(c.Threads)
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return &Result{
		Model: model, TrainLoss: r.state.TrainLoss, Validation: r.state.Validation,
		Tokens: c.Steps * c.Batch * c.Sequence, Seconds: r.state.Seconds,
		Parameters: model.Config.Parameters(), Memory: r.memory(),
	}, nil
}

// hold has the model quantize the master weights for the next step.
func (r *run) hold() error {
	if !r.HoldQuantized {
		return nil
	}
	scope := r.observed(r.state.Step)
	return r.model.HoldWeights(&scope)
}

// scope returns the scope of a step.
func (r *run) scope(step int) nn.Scope {
	return nn.Scope{Recipe: r.Recipe, Seed: r.Seed, Step: uint32(step), Threads: r.Threads, Pad: true}
}

// observed returns the scope of a step, with the hook where the step is observed.
func (r *run) observed(step int) nn.Scope {
	scope := r.scope(step)
	if h := r.hooks; h.Observe != nil && step < r.Steps && (h.Observed == nil || h.Observed(step+1)) {
		scope.Observe = func(o nn.Observation) { h.Observe(step+1, o) }
	}
	return scope
}

// step makes one step.
func (r *run) step() error {
	start := time.Now()
	step := r.state.Step
	scope := r.observed(step)
	loss, err := r.gradients(scope)
	if err != nil {
		return err
	}
	norm := gradientNorm(r.params, r.Threads)
	if !finite(loss) || !finite(norm) {
		return r.diagnose(step, loss)
	}
	rate := r.LearningRate * r.Schedule.Factor(step, r.Steps, r.Warmup)
	r.Optimizer.step(r.params, r.moments, step+1, rate, clipScale(norm, r.Clip), r.Threads)
	r.state.Step++
	if err := r.hold(); err != nil {
		return err
	}
	r.state.TrainLoss = append(r.state.TrainLoss, loss)
	elapsed := time.Since(start)
	r.state.Seconds += elapsed.Seconds()
	if r.hooks.Step != nil {
		r.hooks.Step(StepEvent{Step: step + 1, Steps: r.Steps, Loss: loss, GradientNorm: norm, LearningRate: rate, Tokens: r.Batch * r.Sequence, Elapsed: elapsed})
	}
	return nil
}

// gradients sets the gradients to the mean over the batch of a step, and returns
// its loss.
func (r *run) gradients(scope nn.Scope) (float64, error) {
	for _, p := range r.params {
		clear(p.Grad.Data)
	}
	starts := trainingStarts(len(r.Corpus.Train), r.Sequence, r.Batch, r.Seed, int(scope.Step))
	part := r.Batch / r.Microbatches
	var sum float64
	for i := range r.Microbatches {
		scope.Microbatch = i
		tokens, targets := windows(r.Corpus.Train, starts[i*part:(i+1)*part], r.Sequence)
		loss, err := r.model.Train(&scope, tokens, targets, part, 1/float32(r.Microbatches))
		if err != nil {
			return 0, err
		}
		sum += loss
	}
	return sum / float64(r.Microbatches), nil
}

// validate validates where it is time to, and where that is not done already: a
// run may be interrupted just before.
func (r *run) validate(ctx context.Context) error {
	done, points := r.state.Step, r.state.Validation
	due := done == r.Steps || r.ValidateEvery > 0 && done > 0 && done%r.ValidateEvery == 0
	if !due || len(points) > 0 && points[len(points)-1].Step == done {
		return nil
	}
	loss, _, err := Evaluate(ctx, r.model, r.scope(done), r.Corpus.Validation, r.Sequence, r.ValidationTokens)
	if ctx.Err() != nil {
		return r.interrupt()
	}
	if err != nil {
		return err
	}
	point := ValidationPoint{done, loss}
	r.state.Validation = append(points, point)
	if r.hooks.Validated != nil {
		r.hooks.Validated(point)
	}
	return nil
}

// keep writes a checkpoint where it is time to, or where the run is interrupted.
func (r *run) keep(ctx context.Context) error {
	if ctx.Err() != nil {
		return r.interrupt()
	}
	if done := r.state.Step; r.Out != "" && r.CheckpointEvery > 0 && done%r.CheckpointEvery == 0 {
		return r.checkpoint()
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
