package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// SwiGLU multiplies the second half of each row by a function of the first (Shazeer, "GLU Variants
// Improve Transformer", 2020):
//
//	[G U] = X      Y = silu(G)∘U       silu(g) = g·σ(g), σ(g) = 1/(1+e^-g)
//	dU = dY∘silu(G)       dG = dY∘U∘σ(G)∘(1 + G∘(1−σ(G)))
//
// X is the output of a linear layer with the rows of the gate and up projections.
type SwiGLU struct{ Name string }

type swigluSaved struct{ x *quant.Tensor }

// Bytes implements Saved.
func (s *swigluSaved) Bytes() int { return tensorBytes(s.x) }

// Forward returns Y, n×width, for x, n×2·width. saved is nil under Scope.Inference.
func (g *SwiGLU) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved Saved, err error) {
	if x.Cols%2 != 0 {
		return tensor.Dense{}, nil, fmt.Errorf("%s: input: got %d columns, want an even number", g.Name, x.Cols)
	}
	width := x.Cols / 2
	y = tensor.New(x.Rows, width)
	parallel.For(x.Rows, rowGrain(4*width), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			gate, up, out := x.Row(i)[:width], x.Row(i)[width:], y.Row(i)
			copy(out, gate)
			sigmoids(out)
			for j, v := range gate {
				out[j] = v * out[j] * up[j]
			}
			s.round(out)
		}
	})
	if s.Inference {
		return y, nil, nil
	}
	kept, err := s.save(x)
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", g.Name, err)
	}
	return y, &swigluSaved{kept}, nil
}

// Backward returns dX. It consumes saved.
func (g *SwiGLU) Backward(s *Scope, saved Saved, dy tensor.Dense) (dx tensor.Dense, err error) {
	kept, _ := saved.(*swigluSaved)
	if kept == nil || kept.x == nil {
		return tensor.Dense{}, nothingSaved(g.Name)
	}
	dx = s.restore(&kept.x) // x, which its gradient replaces
	width := dx.Cols / 2
	if err := checkGradient(g.Name, dy, dx.Rows, width); err != nil {
		return tensor.Dense{}, err
	}
	parallel.For(dx.Rows, rowGrain(4*width), s.Threads, func(from, to int) {
		sigma := make([]float32, width)
		for i := from; i < to; i++ {
			gate, up := dx.Row(i)[:width], dx.Row(i)[width:]
			copy(sigma, gate)
			sigmoids(sigma)
			for j, d := range dy.Row(i) {
				v, sigma := gate[j], sigma[j]
				gate[j], up[j] = d*up[j]*sigma*(1+float32(v*(1-sigma))), d*float32(v*sigma)
			}
			s.round(dx.Row(i))
		}
	})
	return dx, nil
}
