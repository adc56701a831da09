package calibration

import (
	"math"
	"time"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Pace is what a method takes on one thread of this machine, in seconds.
type Pace struct {
	Element float64 // to choose the scale and the code of an element
	Spread  float64 // to spread the error of an element over one column
	Factor  float64 // of a factor of n columns, by n³
	Product float64 // of a multiplication and an addition of a product of matrices, such as those of Factor.Aim
}

// paceRuns is how often a measurement of a pace is repeated. The fastest run counts.
const paceRuns = 3

// fastest returns the processor time in seconds of the fastest of some runs, so that other programs change it little; wall time where
// processor time is unknown. One more before them fills caches.
func fastest(run func() error) (seconds float64, err error) {
	seconds = math.Inf(1)
	for i := range 1 + paceRuns {
		before, start := cpu.Seconds(), time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		took := cpu.Seconds() - before
		if took == 0 {
			took = time.Since(start).Seconds()
		}
		if i > 0 {
			seconds = min(seconds, took)
		}
	}
	return seconds, nil
}

// MeasurePace measures the pace of a method whose quantizer is q, in about half a second.
func (m Method) MeasurePace(q quant.Quantizer) (p Pace, err error) {
	const rows, tiles, narrow, wide, factored = rowTile, 8, 256, 8192, 768
	if m == Nearest {
		return p, nil
	}
	took := func(columns int) (float64, error) {
		x, with := sample(tiles*rows, columns), quant.With{Threads: 1, Importance: make([]float32, columns), Mean: make([]float32, columns)}
		f := &Factor{Order: make([]int, columns), u: make([]float32, columns*columns)}
		for i := range columns {
			with.Importance[i], f.Order[i], f.u[i*columns+i] = 1, i, 1
		}
		return fastest(func() error {
			if m == Search {
				_, err := q.Rowwise(x, with)
				return err
			}
			_, err := GPTQ(q, x, with, f)
			return err
		})
	}
	if m == Search {
		all, err := took(4 * narrow)
		return Pace{Element: all / (tiles * rows * 4 * narrow)}, err
	}
	one, err := took(narrow)
	if err != nil {
		return p, err
	}
	if p.Spread, err = spreading(rows, wide); err != nil {
		return p, err
	}
	p.Element = max(0, one/(tiles*rows*narrow)-p.Spread*narrow/2)
	h := make([]float32, triangle(factored))
	for i, at := 0, 0; i < factored; i++ {
		for j := range factored - i {
			h[at+j] = 0.5 // not 0: products of float64 skip zeros
		}
		h[at] = 1
		at += factored - i
	}
	all, err := fastest(func() error {
		_, err := NewFactor(h, factored)
		return err
	})
	if err != nil {
		return p, err
	}
	p.Factor = all / math.Pow(factored, 3)
	a, b := sample(rows, factored), sample(factored, factored)
	all, err = fastest(func() error {
		_, err := product(a, b, false, 1)
		return err
	})
	p.Product = all / (rows * factored * factored)
	return p, err
}

// spreading returns the seconds to spread an error over a column of a row. The rows fill the L2 cache, as those of a large
// model do.
func spreading(rows, columns int) (float64, error) {
	const columnErrors = 32
	u, rest := make([]float32, columns), tensor.New(rows, columns)
	all, err := fastest(func() error {
		for range columnErrors {
			for i := range rows {
				blas32.Axpy(1, blas32.Vector{N: columns, Data: u, Inc: 1}, blas32.Vector{N: columns, Data: rest.Row(i), Inc: 1})
			}
		}
		return nil
	})
	return all / float64(columnErrors*rows*columns), err
}

// sample returns values of a weight.
func sample(rows, columns int) tensor.Dense {
	x := tensor.New(rows, columns)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i)*1.7) * math.Sin(float64(i)*0.31) / 50)
	}
	return x
}

// Weight returns the seconds for a weight of a number of rows and columns, of whose input the factor may have an aim.
func (p Pace) Weight(rows, columns int, aims bool) float64 {
	n := float64(columns)
	seconds := float64(rows) * (n*p.Element + n*n/2*p.Spread)
	if aims {
		seconds += float64(rows) * n * n * p.Product
	}
	return seconds
}

// Input returns the seconds for the factor of an input of a number of columns, and for its aim if it has one.
func (p Pace) Input(columns int, aims bool) float64 {
	each := p.Factor
	if aims {
		each += 2 * p.Product
	}
	return each * math.Pow(float64(columns), 3)
}
