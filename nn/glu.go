package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// GLU is a gated linear unit (Shazeer, "GLU Variants Improve Transformer", 2020): it multiplies half
// of each row by a function of the other half. With zero options, it is SwiGLU:
//
//	[G U] = X      Y = silu(G)∘U       silu(g) = g·σ(g), σ(g) = 1/(1+e^-g)
//	dU = dY∘silu(G)       dG = dY∘U∘σ(G)∘(1 + G∘(1−σ(G)))
//
// X is the output of a linear layer with the rows of the gate and up projections. Only SwiGLU has a
// backward pass.
type GLU struct {
	Name       string
	Activation Activation

	// Limit, if it is not 0, clamps G to at most Limit and U to [−Limit, Limit], and adds 1 to U, as in
	// gpt-oss.
	Limit float32

	// Interleaved marks rows of X whose elements alternate between G and U.
	Interleaved bool
}

// An Activation is the function of the gate.
type Activation struct {
	Name string

	// argument replaces each g by the argument of σ: the activation is g·σ(argument). nil: g itself.
	argument func(g []float32)
}

// The activations.
var (
	SiLU = Activation{Name: "silu"}

	// GELU is the approximation of the Gaussian error linear unit by tanh (Hendrycks and Gimpel, 2016),
	// g/2·(1 + tanh(√(2/π)·(g + 0.044715·g³))).
	GELU = Activation{"gelu", func(g []float32) {
		const inner, outer = 0.044715, 2 * math.Sqrt2 / math.SqrtPi
		for i, v := range g {
			cube := float32(float32(v*v) * v)
			g[i] = outer * float32(v+float32(inner*cube))
		}
	}}

	// QuickSiLU is g·σ(1.702·g), the activation of gpt-oss.
	QuickSiLU = Activation{"quick silu", func(g []float32) {
		for i := range g {
			g[i] *= 1.702
		}
	}}
)

type gluSaved struct{ x *quant.Tensor }

// Bytes implements Saved.
func (s *gluSaved) Bytes() int { return tensorBytes(s.x) }

// Forward returns Y, n×width, for x, n×2·width. saved is nil under Scope.Inference.
func (g *GLU) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved Saved, err error) {
	if x.Cols%2 != 0 {
		return tensor.Dense{}, nil, fmt.Errorf("%s: input: got %d columns, want an even number", g.Name, x.Cols)
	}
	if !s.Inference && (g.Activation.argument != nil || g.Limit != 0 || g.Interleaved) {
		return tensor.Dense{}, nil, fmt.Errorf("%s: the activation %s has no backward pass: use Scope.Inference", g.Name, g.Activation.Name)
	}
	width := x.Cols / 2
	y = s.Arena.Dense(x.Rows, width)
	parallel.ForState(x.Rows, parallel.RowGrain(4*width), s.Threads, gluPass{g, s, x, y}, gluPass.rows)
	if s.Inference {
		return y, nil, nil
	}
	kept, err := s.save(x)
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", g.Name, err)
	}
	return y, &gluSaved{kept}, nil
}

// A gluPass is a forward pass.
type gluPass struct {
	*GLU
	s    *Scope
	x, y tensor.Dense
}

func (p gluPass) rows(from, to int) {
	width := p.y.Cols
	var separate []float32
	if p.Interleaved || p.Limit != 0 {
		separate = make([]float32, 2*width)
	}
	for i := from; i < to; i++ {
		gate, up, out := p.x.Row(i)[:width], p.x.Row(i)[width:], p.y.Row(i)
		if separate != nil {
			gate, up = separate[:width], separate[width:]
			p.separate(gate, up, p.x.Row(i))
		}
		copy(out, gate)
		if p.Activation.argument != nil {
			p.Activation.argument(out)
		}
		sigmoids(out)
		for j, v := range gate {
			out[j] = v * out[j] * up[j]
		}
		p.s.round(out)
	}
}

// separate sets gate and up to the two halves of a row, clamped.
func (g *GLU) separate(gate, up, row []float32) {
	if g.Interleaved {
		for j := range gate {
			gate[j], up[j] = row[2*j], row[2*j+1]
		}
	} else {
		copy(gate, row)
		copy(up, row[len(gate):])
	}
	if g.Limit == 0 {
		return
	}
	for j := range gate {
		gate[j] = min(gate[j], g.Limit)
		up[j] = max(-g.Limit, min(up[j], g.Limit)) + 1
	}
}

// Backward returns dX. It consumes saved.
func (g *GLU) Backward(s *Scope, saved Saved, dy tensor.Dense) (dx tensor.Dense, err error) {
	kept, _ := saved.(*gluSaved)
	if kept == nil || kept.x == nil {
		return tensor.Dense{}, nothingSaved(g.Name)
	}
	dx = s.restore(&kept.x) // x, which its gradient replaces
	width := dx.Cols / 2
	if err := checkGradient(g.Name, dy, dx.Rows, width); err != nil {
		return tensor.Dense{}, err
	}
	parallel.For(dx.Rows, parallel.RowGrain(4*width), s.Threads, func(from, to int) {
		sigmas := make([]float32, width)
		for i := from; i < to; i++ {
			gate, up := dx.Row(i)[:width], dx.Row(i)[width:]
			copy(sigmas, gate)
			sigmoids(sigmas)
			for j, d := range dy.Row(i) {
				v, sigma := gate[j], sigmas[j]
				gate[j], up[j] = d*up[j]*sigma*(1+float32(v*(1-sigma))), d*float32(v*sigma)
			}
			s.round(dx.Row(i))
		}
	})
	return dx, nil
}
