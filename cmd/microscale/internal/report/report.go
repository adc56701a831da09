// Package report renders a comparison of recipes as one self-contained HTML page with tables
// and SVG charts.
//
//	Comparison   what was run, how, and its recipes
//	  Recipe     losses by step, speed, bytes, operands
//	    Operand  the error of one quantized operand at one step
//	  Format     the loss of the trained model in a block format
//
// A Speed is another page: products of matrices in several formats over sizes.
//
// The package computes only gaps, means, shares and standard errors of its data. It imports
// nothing of this module, so it can report any comparison.
package report

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// A Comparison is the same model trained on the same data under several recipes. Losses are in
// nats per token; a missing loss is NaN.
type Comparison struct {
	Title    string
	Subtitle string
	Baseline string // name of the recipe that the others are compared with
	Token    string // unit of the text, such as "byte"
	Recipes  []Recipe
	Formats  []Format // losses of the baseline's model, quantized after training
	How      []Fact   // how the comparison was run, in the order of the page
}

// A Fact describes one aspect of a run: command, seed, data, machine.
type Fact struct {
	Name, Text string
	Code       bool // Text is a command
}

// A Recipe is one training run, or one per seed.
type Recipe struct {
	Name   string
	Doc    string // short description
	Failed string // why the run ended early: "the loss was NaN at step 12"; "" if it did not
	Steps  int    // completed steps

	TrainLoss      float64 // of the last steps, as the trainer reports it
	ValidationLoss float64 // of the final model
	Train          []Point // by step
	Validation     []Point

	// Windows holds the final validation loss of each window of the text, in the same order for
	// all recipes.
	Windows []float64

	// Runs holds the final losses of all seeds, if there are several. All other fields are
	// those of the first seed.
	Runs []Run

	SecondsPerStep  float64
	TokensPerSecond float64
	Busy            bool // other programs used the processors during most steps
	Memory          Memory

	Operands []Operand   // observed operands
	Scales   []Histogram // decode scales of blocks, by operand
}

// Memory is the memory of a run at the peak of a step, in bytes: zero if unknown.
type Memory struct {
	Masters     int64 // FP32 weights of the optimizer
	Gradients   int64 // FP32
	Moments     int64 // FP32, of the optimizer
	Rowwise     int64 // copies of weights for fprop
	Columnwise  int64 // copies of weights for dgrad
	Activations int64 // saved by the forward pass for the backward pass
	Scratch     int64 // for operands
}

// Total returns the sum of all fields.
func (m Memory) Total() int64 {
	return m.Masters + m.Gradients + m.Moments + m.Rowwise + m.Columnwise + m.Activations + m.Scratch
}

// A Run is the end of a training run: the losses of Recipe for one seed.
type Run struct {
	Seed                      uint64
	TrainLoss, ValidationLoss float64
}

// A Point is the loss after a number of steps.
type Point struct {
	Step int
	Loss float64
}

// An Operand is one operand of one module, quantized at one step.
type Operand struct {
	Step      int
	Module    string
	Name      string // input, weight or gradient
	Direction string // rowwise or columnwise
	SQNR      float64
	Amax      float64
	Elements  int64
	Saturated int64 // elements above the largest value of their block
	Flushed   int64 // nonzero elements that became zero
}

// A Histogram counts values by binary exponent e: 2^e ≤ x < 2^(e+1).
type Histogram struct {
	Name   string // name of the operand
	Counts map[int]int64
}

// A Format is the loss of the trained model in a block format.
type Format struct {
	Name    string
	Bits    float64 // bits per element
	Loss    float64
	Windows []float64 // as Recipe.Windows
}

// Perplexity returns e^loss: the number of equally likely tokens with the same loss.
func Perplexity(loss float64) float64 { return math.Exp(loss) }

// baseline returns the baseline recipe, or nil if it is not among the recipes.
func (c *Comparison) baseline() *Recipe {
	if i := c.index(c.Baseline); i >= 0 {
		return &c.Recipes[i]
	}
	return nil
}

// index returns the index of a recipe, which selects its color, or -1.
func (c *Comparison) index(name string) int {
	return slices.IndexFunc(c.Recipes, func(r Recipe) bool { return r.Name == name })
}

// Gap returns the relative difference of a recipe's validation loss from the baseline's, or
// NaN if there is none. With several seeds it is the mean over pairs of runs with the same
// seed.
func (c *Comparison) Gap(r *Recipe) float64 { return stat.Mean(c.gapsBySeed(r), nil) }

// gapsBySeed returns the gaps for the seeds that both the recipe and the baseline have.
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

// runs returns the final losses of all runs, at least one.
func (r *Recipe) runs() []Run {
	if len(r.Runs) > 0 {
		return r.Runs
	}
	return []Run{{TrainLoss: r.TrainLoss, ValidationLoss: r.ValidationLoss}}
}

// Losses returns the final losses, averaged over the seeds.
func (r *Recipe) Losses() (training, validation float64) {
	runs := r.runs()
	for _, run := range runs {
		training += run.TrainLoss
		validation += run.ValidationLoss
	}
	n := float64(len(runs))
	return training / n, validation / n
}

// seeds returns the number of seeds.
func (c *Comparison) seeds() int {
	n := 1
	for i := range c.Recipes {
		n = max(n, len(c.Recipes[i].Runs))
	}
	return n
}

// Saturated returns the share of saturated elements among the observed ones, or NaN if there
// are none.
func (r *Recipe) Saturated() float64 {
	return r.share(func(o *Operand) int64 { return o.Saturated })
}

// Flushed returns the share of elements that became zero among the observed ones, or NaN if
// there are none.
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

// gaps returns the relative differences of the losses of points from those of base at the same
// steps.
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

// smooth returns the moving averages of n points, from the n-th on. If there are fewer points
// it returns the average of all.
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

// ranked returns the recipes with a gap, except the baseline, in ascending order of the gap.
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
