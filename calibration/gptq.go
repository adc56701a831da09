package calibration

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// rowTile is the number of rows whose errors are spread together, so that a row of U is read once for them.
const rowTile = 32

// GPTQ quantizes rows of a weight, outputs × inputs, under the scales that q gives them with with but its Mean: the columns
// in the order of f, each to the nearest code, and the columns after it lose what that rounding gained. Rows are those of W̃ if f aims at
// the outputs of the original model (Factor.Aim); with.Amax is then needed where the format has a global scale. Rows
// do not depend on each other, and results not on with.Threads. It returns an error if q has no Rounder or if f
// is of another number of columns.
func GPTQ(q quant.Quantizer, x tensor.Dense, with quant.With, f *Factor) (*quant.Tensor, error) {
	if len(f.Order) != x.Cols {
		return nil, fmt.Errorf("calibration: the weight has %d columns, its input has %d", x.Cols, len(f.Order))
	}
	if f.aim != nil {
		var err error
		if x, err = f.aimed(x, with.Threads); err != nil {
			return nil, err
		}
	}
	with.Mean = nil // scales that make up for errors leave GPTQ worse (docs/results.md): it makes up for them itself
	t, err := q.Rowwise(x, with)
	if err != nil {
		return nil, err
	}
	r, err := q.Rounder(t)
	if err != nil {
		return nil, err
	}
	parallel.For((x.Rows+rowTile-1)/rowTile, 1, with.Threads, func(from, to int) {
		for tile := from; tile < to; tile++ {
			f.round(r, x, tile*rowTile, min((tile+1)*rowTile, x.Rows))
		}
	})
	return t, nil
}

// round stores the codes of some rows of x.
func (f *Factor) round(r *quant.Rounder, x tensor.Dense, from, to int) {
	n := len(f.Order)
	rest := tensor.New(to-from, n) // in the order of f, less the errors so far
	codes := make([][]byte, to-from)
	for i := range codes {
		codes[i] = make([]byte, n)
		for j, col := range f.Order {
			rest.Row(i)[j] = x.At(from+i, col)
		}
	}
	for j, col := range f.Order {
		u := f.u[j*n : (j+1)*n]
		for i := range codes {
			row := rest.Row(i)
			code, value := r.Round(from+i, col, row[j])
			codes[i][col] = code
			e := (row[j] - value) / u[j]
			if e == 0 || e-e != 0 || j+1 == n { // not finite: the element, or its scale, is NaN
				continue
			}
			blas32.Axpy(-e, blas32.Vector{N: n - j - 1, Data: u[j+1:], Inc: 1}, blas32.Vector{N: n - j - 1, Data: row[j+1:], Inc: 1})
		}
	}
	for i, c := range codes {
		r.SetRow(from+i, c)
	}
}
