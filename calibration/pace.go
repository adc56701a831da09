package calibration

import (
	"math"
	"time"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Pace is what a method takes on one thread of this machine, in seconds.
type Pace struct {
	Element float64 // to choose the scale and the code of an element
	Spread  float64 // to spread the error of an element over one column
	Factor  float64 // of a factor of n columns, by n³
}

// MeasurePace measures the pace of a method whose quantizer is q, in about a fifth of a second.
func (m Method) MeasurePace(q quant.Quantizer) (p Pace, err error) {
	const rows, narrow, wide, factored = rowTile, 256, 8192, 768
	if m == Nearest {
		return p, nil
	}
	took := func(columns int) (float64, error) {
		x, with := sample(rows, columns), quant.With{Threads: 1, Importance: make([]float32, columns), Mean: make([]float32, columns)}
		f := &Factor{Order: make([]int, columns), u: make([]float32, columns*columns)}
		for i := range columns {
			with.Importance[i], f.Order[i], f.u[i*columns+i] = 1, i, 1
		}
		run := func() error {
			if m == Search {
				_, err := q.Rowwise(x, with)
				return err
			}
			_, err := GPTQ(q, x, with, f)
			return err
		}
		if err := run(); err != nil { // the first time also fills caches
			return 0, err
		}
		start := time.Now()
		err := run()
		return time.Since(start).Seconds(), err
	}
	if m == Search {
		all, err := took(4 * narrow)
		return Pace{Element: all / (rows * 4 * narrow)}, err
	}
	one, err := took(narrow)
	if err != nil {
		return p, err
	}
	p.Spread = spreading(rows, wide)
	p.Element = max(0, one-p.Spread*rows*narrow*narrow/2) / (rows * narrow)
	h := make([]float32, triangle(factored))
	for i, at := 0, 0; i < factored; i++ {
		h[at] = 1
		at += factored - i
	}
	start := time.Now()
	if _, err := NewFactor(h, factored); err != nil {
		return p, err
	}
	p.Factor = time.Since(start).Seconds() / math.Pow(factored, 3)
	return p, nil
}

// spreading returns the seconds to spread an error over a column of a row. The rows fill the L2 cache, as those of a large
// model do.
func spreading(rows, columns int) float64 {
	const enough = 20 * time.Millisecond
	u, rest := make([]float32, columns), tensor.New(rows, columns)
	n, start := 0, time.Now()
	for ; n < 2 || time.Since(start) < enough; n++ {
		for i := range rows {
			blas32.Axpy(1, blas32.Vector{N: columns, Data: u, Inc: 1}, blas32.Vector{N: columns, Data: rest.Row(i), Inc: 1})
		}
	}
	return time.Since(start).Seconds() / float64(n*rows*columns)
}

// sample returns values of a weight.
func sample(rows, columns int) tensor.Dense {
	x := tensor.New(rows, columns)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i)*1.7) * math.Sin(float64(i)*0.31) / 50)
	}
	return x
}

// Weight returns the seconds for a weight of a number of rows and columns.
func (p Pace) Weight(rows, columns int) float64 {
	n := float64(columns)
	return float64(rows) * (n*p.Element + n*n/2*p.Spread)
}

// Input returns the seconds for the factor of an input of a number of columns.
func (p Pace) Input(columns int) float64 { return p.Factor * math.Pow(float64(columns), 3) }
