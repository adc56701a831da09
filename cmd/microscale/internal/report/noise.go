package report

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// seedDeviation is the standard deviation of the gap between two runs from the same seed that
// differ only in rounding: they drift apart. It was measured for recipes that lose nothing on
// average: 18 gaps to bf16 after 300 steps of the default model (docs/results.md).
const seedDeviation = 0.0033

// GapError returns the standard error of Gap over the seeds, or NaN for fewer than two.
func (c *Comparison) GapError(r *Recipe) float64 {
	if g := c.gapsBySeed(r); len(g) > 1 {
		return stat.StdErr(stat.StdDev(g, nil), float64(len(g)))
	}
	return math.NaN()
}

// WindowError returns the standard error of the gap of the first seed over the windows of the
// validation text, as a share of the baseline's loss: that of the mean of paired differences.
// It is NaN if the windows are unknown.
func (c *Comparison) WindowError(r *Recipe) float64 {
	if b := c.baseline(); b != nil {
		return pairedError(r.Windows, b.Windows) / b.ValidationLoss
	}
	return math.NaN()
}

// pairedError returns the standard error of the mean difference of paired values, or NaN for
// fewer than two pairs. Pairs with a NaN do not count.
func pairedError(x, y []float64) float64 {
	if len(x) != len(y) {
		return math.NaN()
	}
	var differences []float64
	for i := range x {
		if d := x[i] - y[i]; !math.IsNaN(d) {
			differences = append(differences, d)
		}
	}
	if len(differences) < 2 {
		return math.NaN()
	}
	return stat.StdErr(stat.StdDev(differences, nil), float64(len(differences)))
}

// Noise returns the size below which a recipe's gap may be chance: two standard errors. The
// standard error is the largest of the one over the seeds, the one over the windows of the
// text, and that of the recorded deviation for as many seeds.
func (c *Comparison) Noise(r *Recipe) float64 {
	e := seedDeviation / math.Sqrt(float64(max(1, len(c.gapsBySeed(r)))))
	for _, other := range []float64{c.GapError(r), c.WindowError(r)} {
		if other > e && !math.IsInf(other, 0) {
			e = other
		}
	}
	return 2 * e
}

// curveNoise returns the largest noise of the ranked recipes' gaps of one seed, of which the
// curves are.
func (c *Comparison) curveNoise() float64 {
	e := 0.
	for _, r := range c.ranked() {
		e = max(e, seedDeviation)
		if w := c.WindowError(r); w > e && !math.IsInf(w, 0) {
			e = w
		}
	}
	return 2 * e
}

// Within reports whether a recipe's gap is within the noise.
func (c *Comparison) Within(r *Recipe) bool { return math.Abs(c.Gap(r)) <= c.Noise(r) }

// noise returns the largest noise of the ranked recipes.
func (c *Comparison) noise() float64 {
	largest := 0.
	for _, r := range c.ranked() {
		largest = max(largest, c.Noise(r))
	}
	return largest
}

// costError returns the standard error of the cost of a format over the windows of the text,
// or NaN.
func (c *Comparison) costError(f *Format) float64 {
	if b := c.baseline(); b != nil {
		return pairedError(f.Windows, b.Windows)
	}
	return math.NaN()
}
