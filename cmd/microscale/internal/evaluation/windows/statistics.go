package windows

import (
	"math"
	"slices"
)

// A Mean is a mean with its standard error, √(variance/(n−1)): the variance is that of the values,
// with divisor n.
type Mean struct{ Value, Error float64 }

// meanOf returns the mean of values: NaN without any. The error of a single value is NaN.
func meanOf(values []float64) Mean {
	n := float64(len(values))
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / n
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return Mean{mean, math.Sqrt(squares / n / (n - 1))}
}

// A Distribution describes values: their mean and their percentiles.
type Distribution struct {
	Mean
	sorted []float64
}

// distributionOf returns the distribution of values, which it does not change.
func distributionOf(values []float64) Distribution {
	return Distribution{meanOf(values), slices.Sorted(slices.Values(values))}
}

// At returns the value below which a share p of the values lies, from 0, the minimum, to 1, the
// maximum. Between two values it interpolates linearly, as llama.cpp and NumPy do.
func (d Distribution) At(p float64) float64 {
	if len(d.sorted) == 0 {
		return math.NaN()
	}
	place := p * float64(len(d.sorted)-1)
	below := int(place)
	if below+1 >= len(d.sorted) {
		return d.sorted[len(d.sorted)-1]
	}
	share := place - float64(below)
	return (1-share)*d.sorted[below] + share*d.sorted[below+1]
}

// RMS returns the root mean square of the values.
func (d Distribution) RMS() float64 {
	sum := 0.0
	for _, v := range d.sorted {
		sum += v * v
	}
	return math.Sqrt(sum / float64(len(d.sorted)))
}
