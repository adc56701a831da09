package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A ValidationPoint is the validation loss after a number of steps.
type ValidationPoint struct {
	Step int     `json:"step"`
	Loss float64 `json:"loss"` // nats per token
}

// A Result is a complete run.
type Result struct {
	Model      *decoder.Model
	TrainLoss  []float64         // of each step
	Validation []ValidationPoint // the last one after the last step
	Sequences  []float64         // losses of the sequences of the last validation; nil if the run was resumed after it
	Tokens     int               // trained on, without padding
	Seconds    float64           // of all steps, including those before a resume
	Parameters int

	Ranks    int              // of the job
	Traffic  map[string]int64 // bytes that all ranks sent per step, by purpose, such as "gradients"
	GradSQNR float64          // dB, of gradients as rank 0 sent them; +Inf in FP32

	Memory decoder.Memory // peak of the last step; without copies of weights and activations if a resumed run made no step
}

// SecondsPerStep returns the mean time of a step.
func (r *Result) SecondsPerStep() float64 { return r.Seconds / float64(len(r.TrainLoss)) }

// TokensPerSecond returns the throughput.
func (r *Result) TokensPerSecond() float64 { return float64(r.Tokens) / r.Seconds }

// FinalLoss returns the last training loss and the last validation loss.
func (r *Result) FinalLoss() (training, validation float64) {
	return r.TrainLoss[len(r.TrainLoss)-1], r.Validation[len(r.Validation)-1].Loss
}

// run is the state of a run.
type run struct {
	Config
	groups
	model   *decoder.Model
	params  []*nn.Param
	moments []moments   // of own
	own     []*nn.Param // the rows that this rank optimizes, with the FP32 master weights
	spans   []span      // of own in params
	cuts    [][]int     // of the rows of params, by rank
	shards  []*shard    // quantized weights that are gathered
	rest    []*bucket   // other parameters that are gathered
	tree    gradientTree
	reducer *reducer // of several ranks
	state   state
	kept    int  // steps of the last checkpoint; -1: none
	created bool // the run created Out

	validationTokens, validationTargets []int32
	sequences                           []float64 // losses of the last validation

	tokens      int              // of the last step, without padding
	interrupted bool             // the context of a rank ended
	first       int              // steps before this process
	before      map[string]int64 // traffic before the first step

	staged, stagedPeak int             // bytes of weights under way, outside of gradients
	handOver           func([]float32) // called with a gradient that becomes memory of a transfer; for tests
}

// Run trains a model. If Out is set, it is a new or empty directory, or one with a checkpoint to
// resume from.
//
// When ctx ends, Run finishes the step, writes a checkpoint and returns an *Interrupted. A loss that
// is not finite is a *Diverged. Invalid fields are a *ConfigError, among them sizes for which the
// machine does not have the memory; nothing is written then. A directory that the run
// cannot use, and a complete run to resume, are a *DirectoryError. In a job of several ranks, errors of
// these types are returned on every rank.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Parallel.Group != nil {
		c.Parallel.Group = c.Parallel.Group.Threads(c.Threads)
	}
	g, err := c.Parallel.split()
	if err != nil {
		return nil, err
	}
	r, err := prepare(c, g)
	if err := c.Parallel.agree(err); err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// run executes the run.
func (r *run) run(ctx context.Context) (_ *Result, err error) {
	c := &r.Config
	if err := r.handshake(); err != nil {
		return nil, err
	}
	release := func() {}
	if err := r.Parallel.onFirst(func() error {
		release, err = r.claim()
		return err
	}); err != nil {
		return nil, err
	}
	defer release()
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.Parallel.agree(r.hold()); err != nil {
		r.withdraw(err)
		return nil, err
	}
	r.first, r.before = r.state.Step, r.Parallel.group(trafficControl).Traffic()
	for {
		if err := r.validate(ctx); err != nil {
			return nil, err
		}
		if r.state.Step == c.Steps {
			break
		}
		if err := r.step(ctx); err != nil {
			r.withdraw(err)
			return nil, err
		}
		if err := r.keep(ctx); err != nil {
			return nil, err
		}
	}
	used := r.memory()
	sent, err := r.traffic()
	if err != nil {
		return nil, err
	}
	if err := r.settle(); err != nil {
		return nil, err
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return &Result{
		Model: r.model, TrainLoss: r.state.TrainLoss, Validation: r.state.Validation, Sequences: r.sequences,
		Tokens: r.state.Tokens, Seconds: r.state.Seconds,
		Parameters: r.model.Config.Parameters(), Memory: used,
		Ranks: r.Parallel.ranks(), Traffic: sent, GradSQNR: r.gradSQNR(),
	}, nil
}

// gradSQNR returns the ratio of gradients to their error as they travel, in dB.
func (r *run) gradSQNR() float64 {
	if r.reducer == nil {
		return math.Inf(1)
	}
	return r.reducer.noise.sqnr()
}

// prepare checks c and returns its run at its start.
func prepare(c Config, g groups) (*run, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.CheckMemory(); err != nil {
		return nil, err
	}
	return newRun(c, g)
}

// newRun returns a run at its start, with its validation data.
func newRun(c Config, g groups) (*run, error) {
	r := &run{Config: c, groups: g}
	if err := r.loadValidation(); err != nil {
		return nil, err
	}
	c.Options.Ranks = g.tensor
	model, err := decoder.New(c.Model, c.Options, c.Seed)
	if err != nil {
		return nil, err
	}
	r.model, r.params = model, model.Params()
	r.cuts, r.shards = r.divide()
	r.takeShare(r.cuts, r.shards)
	r.moments = newMoments(r.own)
	for i, p := range r.params {
		r.moments[i].decays = decays(p)
	}
	if r.data.ranks() > 1 {
		r.reducer = newReducer(&r.data, r.params, r.cuts, c.Threads)
		r.rest = newBuckets(r.unsharded(), r.cuts, func(i int) tensor.Dense { return r.params[i].Value })
	}
	return r, nil
}

// memory returns the memory of the last step with that of the optimizer.
func (r *run) memory() decoder.Memory {
	m := r.model.Memory()
	for _, s := range r.moments {
		m.Moments += 4 * (len(s.m) + len(s.v))
	}
	for _, s := range r.shards {
		m.Masters += 4 * len(s.own.Data)
	}
	m.Gradients += r.tree.bytes()
	m.Staging = r.stagedPeak
	if r.reducer != nil {
		m.Messages = r.reducer.bytes()
	}
	return m
}

// hold gives the model the weights of the next step. It gathers those of other ranks, and quantizes
// weights if HoldQuantized is set.
func (r *run) hold() error {
	scope := r.observed(r.state.Step)
	if r.data.distributed() {
		return r.gather(&scope)
	}
	if !r.HoldQuantized {
		return nil
	}
	return r.model.HoldWeights(&scope)
}

// settle replaces master weights with the values of held weights at the end of a run.
func (r *run) settle() error {
	if !r.HoldQuantized {
		return r.assemble()
	}
	for _, s := range r.shards {
		if err := s.linear.FetchCopies(); err != nil {
			return err
		}
	}
	r.model.SettleWeights(r.Threads)
	return r.assemble()
}

// assemble replaces the part of the model that this rank has with the whole.
func (r *run) assemble() (err error) {
	r.model, err = r.model.Whole()
	return err
}

// scope returns the scope of a step without an observer.
func (r *run) scope(step int) nn.Scope {
	s := nn.Scope{Recipe: r.Recipe, Pad: true, Random: nn.Random{Seed: r.Seed, Step: uint32(step)}, Threads: r.Threads}
	switch {
	case r.Parallel.TensorAmaxOnly && r.tensor.Size() > 1:
		s.ReduceAmax = r.tensor.Group.For(trafficAmax).Max
	case r.Parallel.ranks() > 1 && !r.Parallel.TensorAmaxOnly:
		s.ReduceAmax = r.Parallel.group(trafficAmax).Max
	}
	return s
}

// observed returns the scope of a step with the configured observer.
func (r *run) observed(step int) nn.Scope {
	scope := r.scope(step)
	if r.Observer != nil && step < r.Steps && r.Parallel.rank() == 0 {
		scope.Observer = r.Observer(step + 1)
	}
	return scope
}

// gradients sets the gradients to the mean over the microbatches of a step, and returns the mean of
// their losses and the norm of the gradients.
func (r *run) gradients(ctx context.Context, step int) (loss, norm float64, err error) {
	several := r.data.ranks() > 1
	if several {
		r.reducer.noise.enabled = step%noiseEvery == 0
	}
	losses, err := r.backward(r.observed(step), several)
	if err != nil && r.tensor.Size() > 1 {
		return 0, 0, err // the ranks that share the layers wait for this one
	}
	own := status{losses: losses, err: err}
	if r.tensor.Rank() > 0 {
		own.losses = nil // which rank 0 has
	}
	if several {
		own.nonFinite = r.reducer.nonFinite.Load()
	}
	all, err := r.exchange(ctx, own)
	if err != nil {
		return 0, 0, err
	}
	if several {
		if err := r.reducer.finish(); err != nil {
			return 0, 0, err
		}
	}
	r.interrupted = all.interrupted
	if all.nonFinite {
		return all.mean(), math.NaN(), nil
	}
	norm, err = r.norm()
	return all.mean(), norm, err
}

// noiseEvery is the number of steps between measurements of the error of gradients that travel in
// another format than FP32.
const noiseEvery = 10

// step runs one step.
func (r *run) step(ctx context.Context) error {
	start := time.Now()
	step := r.state.Step
	loss, norm, err := r.gradients(ctx, step)
	if err != nil {
		return err
	}
	if !finite(loss) || !finite(norm) {
		return r.diagnose(step, loss)
	}
	rate := r.LearningRate * r.Schedule.Factor(step, r.Steps, r.Warmup)
	r.Optimizer.step(r.own, r.moments, step+1, rate, clipScale(norm, r.Clip), r.Threads)
	r.clearGradients()
	r.state.Step++
	if err := r.hold(); err != nil {
		return err
	}
	r.state.TrainLoss = append(r.state.TrainLoss, loss)
	r.state.Tokens += r.tokens
	elapsed := time.Since(start)
	r.state.Seconds += elapsed.Seconds()
	r.report(Event{Kind: Step, Step: step + 1, Loss: loss, GradientNorm: norm, LearningRate: rate, Tokens: r.tokens, Elapsed: elapsed})
	return nil
}

// loadValidation loads the validation data, and checks that there is training data.
func (r *run) loadValidation() (err error) {
	if r.Data == nil {
		return invalid("Data", "is nil, want the batches to train on")
	}
	sequences := max(r.ValidationTokens/r.Sequence, 1)
	r.validationTokens, r.validationTargets, err = r.Data.Validation(sequences, r.Sequence)
	if err == nil {
		err = checkBatch(r.validationTokens, r.validationTargets, 1, sequences, r.Sequence)
	}
	if err != nil {
		return fmt.Errorf("validation data: %w", err)
	}
	if _, _, err := r.Data.Training(r.Seed, 0, 1, r.Sequence); err != nil {
		return fmt.Errorf("training data: %w", err)
	}
	return nil
}

// validate computes the validation loss if it is due and not known from before an interruption.
func (r *run) validate(ctx context.Context) error {
	done, points := r.state.Step, r.state.Validation
	due := done == r.Steps || r.ValidateEvery > 0 && done > 0 && done%r.ValidateEvery == 0
	if !due || len(points) > 0 && points[len(points)-1].Step == done {
		return nil
	}
	e, err := r.evaluate(ctx)
	if errors.Is(err, context.Canceled) {
		return r.interrupt()
	}
	if err != nil {
		return err
	}
	r.sequences = e.Sequences
	r.state.Validation = append(points, ValidationPoint{done, e.Loss})
	r.report(Event{Kind: Validation, Step: done, Loss: e.Loss})
	return nil
}

// keep writes a checkpoint if one is due or the context of a rank had ended by the end of the
// backward pass.
func (r *run) keep(ctx context.Context) error {
	if r.interrupted || r.Parallel.ranks() == 1 && ctx.Err() != nil {
		return r.interrupt()
	}
	if done := r.state.Step; r.Out != "" && r.CheckpointEvery > 0 && done%r.CheckpointEvery == 0 {
		return r.checkpoint()
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// ErrDone is the error for a complete run to resume. A *DirectoryError matches it.
var ErrDone = errors.New("the run is complete: there is nothing to resume")
