// Package report draws a comparison of recipes as one HTML page that needs
// nothing beside it: tables, and charts as SVG, from rows.
//
//	Comparison   what was run, how, and its recipes
//	  Recipe     losses by step, speed, bytes, operands
//	    Operand  the error of one quantized operand at one step
//	  Format     what the trained model loses in a block format
//
// It computes nothing that the rows do not say but gaps, means and shares, and
// imports nothing of this module: anything can be reported.
package report

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// A Comparison is the same model trained on the same data under several
// recipes. Losses are in nats per token; a loss that is not there is NaN.
type Comparison struct {
	Title    string
	Subtitle string
	Baseline string // the recipe that the others are compared with
	Token    string // what a token is: "byte"
	Recipes  []Recipe
	Formats  []Format // what the baseline's model loses when it is quantized afterwards
	How      []Fact   // how it was run, in the order of the page
}

// A Fact is a line of how a comparison was run: command, seed, data, machine.
type Fact struct {
	Name, Text string
	Code       bool // Text is something to type
}

// A Recipe is one training run, or one for each of several seeds.
type Recipe struct {
	Name   string
	Doc    string // what it is, in a few words
	Failed string // why the run ended before its last step: "the loss was NaN at step 12"; "" where it did not
	Steps  int    // done

	TrainLoss      float64 // of the last steps, as the trainer states it
	ValidationLoss float64 // of the model at the end
	Train          []Point // by step
	Validation     []Point

	// Runs are the ends of the runs of all seeds, where there are several. All else
	// is of the first.
	Runs []Run

	SecondsPerStep  float64
	TokensPerSecond float64
	Busy            bool // other programs had the processors during most steps, which took longer for that
	Memory          Memory

	Operands []Operand   // those that were observed
	Scales   []Histogram // of the decode scales of blocks, by operand
}

// Memory is what a run holds at the peak of a step, in bytes: zero where that is not
// known.
type Memory struct {
	Masters     int64 // FP32 weights of the optimizer
	Gradients   int64 // FP32
	Moments     int64 // FP32, of the optimizer
	Rowwise     int64 // copies of weights that fprop takes
	Columnwise  int64 // copies of weights that dgrad takes
	Activations int64 // saved by the forward pass for the backward pass
	Scratch     int64 // for operands
}

// Total returns the sum.
func (m Memory) Total() int64 {
	return m.Masters + m.Gradients + m.Moments + m.Rowwise + m.Columnwise + m.Activations + m.Scratch
}

// A Run is the end of a training run: the losses of Recipe for one seed.
type Run struct {
	Seed                      uint64
	TrainLoss, ValidationLoss float64
}

// A Point is a loss after so many steps.
type Point struct {
	Step int
	Loss float64
}

// An Operand is one operand of one module, as it was quantized at one step.
type Operand struct {
	Step      int
	Module    string
	Name      string // input, weight or gradient
	Direction string // rowwise or columnwise
	SQNR      float64
	Amax      float64
	Elements  int64
	Saturated int64 // beyond the largest value of their block
	Flushed   int64 // became zero
}

// A Histogram counts numbers by their binary exponent: 2^e ≤ x < 2^(e+1).
type Histogram struct {
	Name   string // of the operand
	Counts map[int]int64
}

// A Format is what the trained model loses in a block format.
type Format struct {
	Name string
	Bits float64 // for an element
	Loss float64
}

// Perplexity returns e^loss: of how many equally likely tokens the model
// chooses, as it were.
func Perplexity(loss float64) float64 { return math.Exp(loss) }

// baseline returns the recipe that the others are compared with, nil where it is
// not among them.
func (c *Comparison) baseline() *Recipe {
	if i := c.index(c.Baseline); i >= 0 {
		return &c.Recipes[i]
	}
	return nil
}

// index returns the place of a recipe, which has its color; -1 where it is not
// there.
func (c *Comparison) index(name string) int {
	return slices.IndexFunc(c.Recipes, func(r Recipe) bool { return r.Name == name })
}

// Gap returns by how much the validation loss of a recipe is above that of the
// baseline, as a share of it; NaN where there is none. Of several seeds it is the
// mean of the gaps between runs of the same seed.
func (c *Comparison) Gap(r *Recipe) float64 { return stat.Mean(c.gapsBySeed(r), nil) }

// GapError returns the standard error of Gap, from how gaps differ by seed; NaN
// where there are fewer than two.
func (c *Comparison) GapError(r *Recipe) float64 {
	if g := c.gapsBySeed(r); len(g) > 1 {
		return stat.StdErr(stat.StdDev(g, nil), float64(len(g)))
	}
	return math.NaN()
}

// gapsBySeed returns the gaps of the seeds that the recipe and the baseline have.
func (c *Comparison) gapsBySeed(r *Recipe) []float64 {
	b := c.baseline()
	if b == nil {
		return nil
	}
	var gaps []float64
	for _, run := range r.runs() {
		for _, base := range b.runs() {
			if run.Seed == base.Seed {
				gaps = append(gaps, run.ValidationLoss/base.ValidationLoss-1)
			}
		}
	}
	return gaps
}

// runs returns the ends of all runs, of which there is at least one.
func (r *Recipe) runs() []Run {
	if len(r.Runs) > 0 {
		return r.Runs
	}
	return []Run{{TrainLoss: r.TrainLoss, ValidationLoss: r.ValidationLoss}}
}

// Losses returns the losses at the end: the means over the seeds.
func (r *Recipe) Losses() (training, validation float64) {
	runs := r.runs()
	for _, run := range runs {
		training += run.TrainLoss
		validation += run.ValidationLoss
	}
	n := float64(len(runs))
	return training / n, validation / n
}

// seeds returns how many seeds there are.
func (c *Comparison) seeds() int {
	n := 1
	for i := range c.Recipes {
		n = max(n, len(c.Recipes[i].Runs))
	}
	return n
}

// Saturated returns the share of saturated elements among all that were
// observed, NaN where none were.
func (r *Recipe) Saturated() float64 {
	return r.share(func(o *Operand) int64 { return o.Saturated })
}

// Flushed returns the share of elements that became zero among all that were
// observed, NaN where none were.
func (r *Recipe) Flushed() float64 {
	return r.share(func(o *Operand) int64 { return o.Flushed })
}

func (r *Recipe) share(count func(*Operand) int64) float64 {
	var n, all int64
	for i := range r.Operands {
		n += count(&r.Operands[i])
		all += r.Operands[i].Elements
	}
	return float64(n) / float64(all)
}

// gaps returns by how much the losses of points are above those of base at the
// same steps, as a share.
func gaps(points, base []Point) []Point {
	at := map[int]float64{}
	for _, p := range base {
		at[p.Step] = p.Loss
	}
	var list []Point
	for _, p := range points {
		if b, ok := at[p.Step]; ok {
			list = append(list, Point{p.Step, p.Loss/b - 1})
		}
	}
	return list
}

// smooth returns the means of the last n points, from the n-th on: of all of
// them where there are fewer.
func smooth(points []Point, n int) []Point {
	n = max(1, min(n, len(points)))
	var list []Point
	for i := n; i <= len(points); i++ {
		sum := 0.0
		for _, p := range points[i-n : i] {
			sum += p.Loss
		}
		list = append(list, Point{points[i-1].Step, sum / float64(n)})
	}
	return list
}

// ranked returns the recipes that have a gap, but for the baseline, smallest gap
// first.
func (c *Comparison) ranked() []*Recipe {
	var list []*Recipe
	for i := range c.Recipes {
		r := &c.Recipes[i]
		if g := c.Gap(r); r.Name != c.Baseline && r.Failed == "" && !math.IsNaN(g) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *Recipe) int { return cmp.Compare(c.Gap(a), c.Gap(b)) })
	return list
}
