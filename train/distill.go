package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// A Distillation trains the scales of a quantized model, whose codes stay, until its logits are closer to those of its
// original. Each step reads one window, in an order that depends on the seed alone:
//
//	windows → Student.Divergence (KL, gradients of the logarithms of scales) → updates → scales, rounded to their format
//
// Gradients are those of the rounded scales, and updates stay in float32 (straight-through estimation). AdamW trains global scales
// and norms. From BlockSteps steps on, a block scale moves with −Σg/√Σg², its gradients over all windows: when they agree, and by
// little for one window of huge gradients.
type Distillation struct {
	Student  *decoder.Student
	Original *decoder.Model
	Windows  [][]int32 // tokens to train on
	HeldOut  [][]int32 // tokens that decide whether the result is kept
	Steps    int
	Norms    bool // also train the weights of norms
	Seed     uint64
	Threads  int

	State string // a file for the state of an interrupted run; it is left when the run completes
	Key   string // identifies models, text and options: a state with another key is an OtherRunError

	Progress func(Distilled) // called after each window; may be nil
}

// Distilled is the result of a Distillation, or its progress.
type Distilled struct {
	Steps   int       `json:"steps"`
	Losses  []float64 `json:"losses"`          // KL of each step, in nats per token
	Before  []float64 `json:"before"`          // KL of each window that is held out, with the scales of the start
	After   []float64 `json:"after,omitempty"` // with those of the end
	Seconds float64   `json:"seconds"`         // of all runs

	Scales  int `json:"-"` // of blocks
	Changed int `json:"-"` // of them by the training
}

// Better reports whether the training improved the windows that were held out. Otherwise the student has its first scales.
func (d *Distilled) Better() bool { return len(d.After) > 0 && mean(d.After) < mean(d.Before) }

// Mean returns the mean KL of the windows that were held out, before and after.
func (d *Distilled) Mean() (before, after float64) { return mean(d.Before), mean(d.After) }

func mean(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// distillRate is the learning rate of global scales and norms, whose gradients agree from window to window: about 0.12 % a step at first.
const distillRate = 0.0012

// blockRate is what the logarithm of a block scale moves by for each standard deviation that the sum of its gradients is away from 0. It
// rounds to another code after half a spacing of E4M3, 0.03 to 0.06, which takes 2.5 to 5 of them: few of a million would by noise.
const blockRate = 0.0125

// BlockSteps is the number of steps from which block scales are trained: fewer windows say little about each of millions.
const BlockSteps = 100

// distiller is the optimizer of global scales and norms. Gradients of logarithms may be small: epsilon is far below.
var distiller = AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-15}

// keepEvery is the time between writes of the state, as a multiple of the time of one write.
const keepEvery = 20

// A distillation is the state of a run.
type distillation struct {
	Distillation
	recipe  recipe.Recipe
	factors []*factor
	params  []*nn.Param // of the factors
	blocks  int         // how many of them are block scales, which are first
	moments []moments
	done    Distilled
	started time.Time
	before  float64 // seconds of earlier runs
}

// Run trains the scales of the student, and leaves them in it. If they did not improve the windows that are held out, it
// leaves those of the start. When ctx ends, it keeps its state and returns the error of ctx; the next run with the same
// key resumes with the same result.
func (c Distillation) Run(ctx context.Context) (*Distilled, error) {
	if len(c.Windows) == 0 || len(c.HeldOut) == 0 || c.Steps < 1 {
		return nil, errors.New("distill: want windows to train on, windows that are held out, and at least one step")
	}
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		return nil, err
	}
	d := &distillation{Distillation: c, recipe: bf16, started: time.Now()}
	d.prepare()
	if err := d.restore(); err != nil {
		return nil, err
	}
	d.before = d.done.Seconds
	if err := d.run(ctx); err != nil {
		return nil, errors.Join(err, d.keep())
	}
	d.done.Changed = d.apply()
	if !d.done.Better() {
		d.reset()
		d.done.Changed = 0
	}
	return &d.done, d.keep()
}

// prepare makes the factors.
func (d *distillation) prepare() {
	layers := d.Student.Layers()
	for _, l := range layers {
		d.factors = append(d.factors, blockFactor(l))
		d.done.Scales += len(l.Weight.Scales)
	}
	d.blocks = len(d.factors)
	for _, l := range layers {
		if l.Weight.Format.Global {
			d.factors = append(d.factors, globalFactor(l))
		}
	}
	if d.Norms {
		for _, p := range d.Student.Norms() {
			d.factors = append(d.factors, normFactor(p))
		}
	}
	for _, f := range d.factors {
		d.params = append(d.params, f.param)
	}
	d.moments = newMoments(d.params)
	for i := range d.moments {
		d.moments[i].decays = false
	}
}

// run makes the missing steps.
func (d *distillation) run(ctx context.Context) error {
	if err := d.evaluate(ctx, &d.done.Before); err != nil {
		return err
	}
	d.apply()
	kept, took := time.Now(), time.Duration(0)
	for d.done.Steps < d.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.step(); err != nil {
			return err
		}
		d.report()
		if began := time.Now(); began.Sub(kept) > keepEvery*took {
			if err := d.keep(); err != nil {
				return err
			}
			kept = time.Now()
			took = kept.Sub(began)
		}
	}
	return d.evaluate(ctx, &d.done.After)
}

// evaluate completes the divergences of the windows that are held out.
func (d *distillation) evaluate(ctx context.Context, list *[]float64) error {
	for _, w := range d.HeldOut[len(*list):] {
		if err := ctx.Err(); err != nil {
			return err
		}
		kl, err := d.Student.Divergence(nn.Scope{Recipe: d.recipe, Threads: d.Threads, Inference: true}, d.Original, w)
		if err != nil {
			return err
		}
		if m := mean(kl); !finite(m) {
			return fmt.Errorf("distill: window %d that is held out: the divergence is %g: the logits of a model are not finite", len(*list)+1, m)
		}
		*list = append(*list, mean(kl))
		d.report()
	}
	return nil
}

// step reads a window and updates the factors.
func (d *distillation) step() error {
	step := d.done.Steps
	kl, err := d.Student.Divergence(nn.Scope{Recipe: d.recipe, Threads: d.Threads}, d.Original, d.Windows[d.window(step)])
	if err != nil {
		return err
	}
	if loss := mean(kl); !finite(loss) {
		return fmt.Errorf("distill: step %d: the divergence is %g", step+1, loss)
	}
	for _, f := range d.factors {
		f.gradient()
	}
	rate := distillRate * cosine.Factor(step, d.Steps, 0)
	distiller.step(d.params[d.blocks:], d.moments[d.blocks:], step+1, rate, 1, d.Threads)
	if d.Steps >= BlockSteps {
		for i, p := range d.params[:d.blocks] {
			updateBlocks(p, d.moments[i], d.Threads)
		}
	}
	for _, l := range d.Student.Layers() {
		clear(l.Grad.Data)
	}
	for _, p := range d.Student.Norms() {
		p.ZeroGrad()
	}
	d.apply()
	d.done.Losses, d.done.Steps = append(d.done.Losses, mean(kl)), step+1
	return nil
}

// updateBlocks adds the gradients of block scales to their sums, m of gradients and v of squares, and sets their logarithms by them.
func updateBlocks(p *nn.Param, sums moments, threads int) {
	m, v, w, g := sums.m, sums.v, p.Value.Data, p.Grad.Data
	parallel.For(len(w), 1<<14, threads, func(from, to int) {
		for j := from; j < to; j++ {
			m[j] += g[j]
			if v[j] += float32(g[j] * g[j]); v[j] > 0 {
				w[j] = -blockRate * float32(m[j]/float32(math.Sqrt(float64(v[j]))))
			}
		}
	})
}

// window returns the window of a step: each pass over the windows is in another order.
func (d *distillation) window(step int) int {
	pass := step / len(d.Windows)
	r := rand.New(rand.NewPCG(d.Seed, uint64(pass)))
	return r.Perm(len(d.Windows))[step%len(d.Windows)]
}

// apply gives the student the scales of the factors, and returns the number of block scales that are not those of the start.
func (d *distillation) apply() (changed int) {
	for _, f := range d.factors {
		changed += f.apply()
	}
	return changed
}

// reset gives the student its first scales.
func (d *distillation) reset() {
	for _, p := range d.params {
		p.Fill(0)
	}
	d.apply()
}

func (d *distillation) report() {
	d.done.Seconds = d.before + time.Since(d.started).Seconds()
	if d.Progress != nil {
		p := d.done
		p.Losses, p.Before, p.After = slices.Clip(p.Losses), slices.Clip(p.Before), slices.Clip(p.After)
		d.Progress(p)
	}
}
