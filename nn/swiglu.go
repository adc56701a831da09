package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// SwiGLU gates the second half of each row with the first:
//
//	[G U] = X      Y = silu(G)∘U       silu(g) = g·σ(g), σ(g) = 1/(1+e^-g)
//	dU = dY∘silu(G)       dG = dY∘U∘σ(G)∘(1 + G∘(1−σ(G)))
//
// (Shazeer, "GLU Variants Improve Transformer", 2020.) X is what one linear layer
// of the gate's rows and, after them, the other branch's computes.
type SwiGLU struct{ Name string }

// SwiGLUSaved is what a forward keeps for its backward.
type SwiGLUSaved struct{ x *quant.Tensor }

// Bytes returns the memory that it takes.
func (s *SwiGLUSaved) Bytes() int { return tensorBytes(s.x) }

// Params returns nothing.
func (g *SwiGLU) Params() []*Param { return nil }

// Forward returns n×width for x of n×2·width. saved is nil where the scope is one
// of inference.
func (g *SwiGLU) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved *SwiGLUSaved, err error) {
	if x.Cols%2 != 0 {
		return tensor.Dense{}, nil, fmt.Errorf("%s: rows of %d elements are not two halves", g.Name, x.Cols)
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
	kept, err := s.keep(x)
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", g.Name, err)
	}
	return y, &SwiGLUSaved{kept}, nil
}

// Backward returns dX.
func (g *SwiGLU) Backward(s *Scope, saved *SwiGLUSaved, dy tensor.Dense) (dx tensor.Dense, err error) {
	if saved == nil || saved.x == nil {
		return tensor.Dense{}, nothingSaved(g.Name)
	}
	dx = s.restore(&saved.x) // x, which its gradient replaces
	width := dx.Cols / 2
	if dy.Rows != dx.Rows || dy.Cols != width {
		return tensor.Dense{}, fmt.Errorf("%s: the gradient is %d×%d, not %d×%d", g.Name, dy.Rows, dy.Cols, dx.Rows, width)
	}
	parallel.For(dx.Rows, rowGrain(4*width), s.Threads, func(from, to int) {
		sigma := make([]float32, width) // of a row
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
