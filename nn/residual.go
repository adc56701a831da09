package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Add sets dst to a + b, a residual connection, rounded to the recipe's Activations. All three
// have the same shape; dst may be a or b.
func Add(s *Scope, dst, a, b tensor.Dense) error {
	if a.Rows != b.Rows || a.Cols != b.Cols || dst.Rows != a.Rows || dst.Cols != a.Cols {
		return fmt.Errorf("residual connection: shapes differ: %d×%d = %d×%d + %d×%d", dst.Rows, dst.Cols, a.Rows, a.Cols, b.Rows, b.Cols)
	}
	parallel.ForState(a.Rows, parallel.RowGrain(a.Cols), s.Threads, addition{s, dst, a, b}, addition.rows)
	return nil
}

type addition struct {
	s         *Scope
	dst, a, b tensor.Dense
}

func (x addition) rows(from, to int) {
	for i := from; i < to; i++ {
		d, b := x.dst.Row(i), x.b.Row(i)
		for j, v := range x.a.Row(i) {
			d[j] = v + b[j]
		}
		x.s.round(d)
	}
}

// Scale multiplies x by a factor in place, and rounds it to the recipe's Activations.
func Scale(s *Scope, x tensor.Dense, factor float32) {
	elementwise(s, x, factor, func(row []float32, factor float32) {
		for j := range row {
			row[j] *= factor
		}
	})
}

// Softcap replaces each element of x by limit·tanh(x/limit), and rounds it to the recipe's Activations.
func Softcap(s *Scope, x tensor.Dense, limit float32) {
	elementwise(s, x, limit, softcap)
}

// elementwise calls f with each row of x and a parameter, and rounds the result.
func elementwise(s *Scope, x tensor.Dense, parameter float32, f func(row []float32, parameter float32)) {
	parallel.ForState(x.Rows, parallel.RowGrain(x.Cols), s.Threads, rowFunction{s, x, parameter, f}, rowFunction.rows)
}

type rowFunction struct {
	s         *Scope
	x         tensor.Dense
	parameter float32
	f         func(row []float32, parameter float32)
}

func (r rowFunction) rows(from, to int) {
	for i := from; i < to; i++ {
		r.f(r.x.Row(i), r.parameter)
		r.s.round(r.x.Row(i))
	}
}

// checkWidth returns an error if the rows of a module's input do not have the given width.
func checkWidth(module string, x tensor.Dense, want int) error {
	if x.Cols != want {
		return fmt.Errorf("%s: input: got %d columns, want %d", module, x.Cols, want)
	}
	return nil
}

// checkGradient returns an error if a gradient does not have the shape of the module's output.
func checkGradient(module string, dy tensor.Dense, rows, cols int) error {
	if dy.Rows != rows || dy.Cols != cols {
		return fmt.Errorf("%s: gradient: got %d×%d, want %d×%d", module, dy.Rows, dy.Cols, rows, cols)
	}
	return nil
}
