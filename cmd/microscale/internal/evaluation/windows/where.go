package windows

import (
	"math"
	"slices"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// An Error is the squared distance of a matrix from the original, and the squared norm of that, as
// sums over all windows.
type Error struct {
	Distance float64 `json:"distance"`
	Norm     float64 `json:"norm"`
}

// Relative returns ‖S−T‖²/‖T‖². It is 0 where both are 0.
func (e Error) Relative() float64 {
	if e.Distance == 0 {
		return 0
	}
	return e.Distance / e.Norm
}

// finite reports whether the sums are numbers.
func (e Error) finite() bool {
	return !math.IsNaN(e.Distance+e.Norm) && !math.IsInf(e.Distance+e.Norm, 0)
}

// add accumulates the error of got. The sum is in the order of the rows for any number of threads.
func (e *Error) add(got, want tensor.Dense, threads int) {
	rows := make([]Error, want.Rows)
	parallel.For(want.Rows, 16, threads, func(from, to int) {
		for i := from; i < to; i++ {
			g, w := got.Row(i), want.Row(i)
			for j, v := range w {
				d := float64(g[j]) - float64(v)
				rows[i].Distance += d * d
				rows[i].Norm += float64(v) * float64(v)
			}
		}
	})
	for _, r := range rows {
		e.Distance += r.Distance
		e.Norm += r.Norm
	}
}

// LayerErrors are the errors of a layer and of its linear layers.
type LayerErrors struct {
	// Output is the error of the residual stream after the layer, which has accumulated from all
	// layers before.
	Output Error `json:"output"`

	// Linears are the errors of the outputs of linear layers for the input that they have in the
	// original: those of their own weights.
	Linears []LinearError `json:"linears"`
}

// A LinearError is the local error of a linear layer.
type LinearError struct {
	Name  string `json:"name"`
	Error Error  `json:"error"`
}

// linear returns the error of a linear layer, which it adds if it is new.
func (l *LayerErrors) linear(name string) *Error {
	i := slices.IndexFunc(l.Linears, func(e LinearError) bool { return e.Name == name })
	if i < 0 {
		i = len(l.Linears)
		l.Linears = append(l.Linears, LinearError{Name: name})
	}
	return &l.Linears[i].Error
}
