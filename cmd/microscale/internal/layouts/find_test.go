package layouts

import (
	"math"
	"slices"
	"testing"
)

// TestExplained checks shares of variance that are known: rows and columns alone are explained, an
// alternation not at all, and of a sum of both its part.
func TestExplained(t *testing.T) {
	const rows, cols = 4, 6
	made := func(value func(i, j int) float64) (x []float64) {
		for i := range rows {
			for j := range cols {
				x = append(x, value(i, j))
			}
		}
		return x
	}
	alternating := func(i, j int) float64 { return float64((i+j)%2*2 - 1) }
	for name, tc := range map[string]struct {
		value func(i, j int) float64
		want  float64
	}{
		"equal":              {func(int, int) float64 { return -3 }, 0},
		"rows":               {func(i, _ int) float64 { return float64(i * i) }, 1},
		"rows and columns":   {func(i, j int) float64 { return float64(i) - 5*float64(j) }, 1},
		"alternating":        {alternating, 0},
		"rows of variance 1": {func(i, j int) float64 { return float64(i%2*2-1) + alternating(i, j) }, 0.5},
	} {
		if got := explained(made(tc.value), rows, cols); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%s: got %g, want %g", name, got, tc.want)
		}
	}
	x := []float64{1, 2, 3, 4}
	if got := explained(slices.Clone(x), 1, 4); got != 1 {
		t.Errorf("one row: got %g, want 1", got)
	}
}
