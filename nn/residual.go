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
	parallel.For(a.Rows, rowGrain(a.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			d, b := dst.Row(i), b.Row(i)
			for j, v := range a.Row(i) {
				d[j] = v + b[j]
			}
			s.round(d)
		}
	})
	return nil
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
