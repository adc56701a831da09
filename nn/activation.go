package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// round rounds x to the format of activations, on this goroutine.
func (s *Scope) round(x []float32) {
	if s.Recipe.Activations.Element != format.F32 {
		roundBF16(x)
	}
}

// rowGrain is how many rows of the given width are worth a goroutine.
func rowGrain(width int) int { return max(1, roundGrain/max(1, width)) }

// Add sets dst to a + b, rounded to the format of activations: a residual
// connection. dst may be a or b. All have one shape.
func Add(s *Scope, dst, a, b tensor.Dense) error {
	if a.Rows != b.Rows || a.Cols != b.Cols || dst.Rows != a.Rows || dst.Cols != a.Cols {
		return fmt.Errorf("residual connection: %d×%d and %d×%d do not add to %d×%d", a.Rows, a.Cols, b.Rows, b.Cols, dst.Rows, dst.Cols)
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

// checkWidth reports rows that are not as wide as a module takes them.
func checkWidth(module string, x tensor.Dense, want int) error {
	if x.Cols != want {
		return fmt.Errorf("%s: the input has rows of %d elements, not %d", module, x.Cols, want)
	}
	return nil
}
