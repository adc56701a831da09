package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// RMSNorm scales each row to a root mean square of one:
//
//	Y = w ∘ X·r               r = 1/√(mean(X²) + ε), for each row
//	dX = r·(w∘dY − X·r²·mean(w∘dY∘X))      dw += Σ over rows of dY∘X·r
//
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.) Everything
// is computed in float32, the weight is taken as the value of activations that it
// rounds to, and Y and dX are rounded once, at the end.
type RMSNorm struct {
	Name    string
	Epsilon float32
	Weight  *Param // 1 × width
}

// RMSNormSaved is what a forward keeps for its backward.
type RMSNormSaved struct {
	x       *quant.Tensor
	inverse []float32 // r of each row
}

// Bytes returns the memory that it takes.
func (s *RMSNormSaved) Bytes() int { return tensorBytes(s.x) + 4*len(s.inverse) }

// NewRMSNorm returns a norm of rows of the given width with weights of one.
func NewRMSNorm(name string, width int, epsilon float32) *RMSNorm {
	n := &RMSNorm{Name: name, Epsilon: epsilon, Weight: NewParam(name+".weight", 1, width)}
	n.Weight.Fill(1)
	return n
}

// Params returns the weight.
func (n *RMSNorm) Params() []*Param { return []*Param{n.Weight} }

// weight returns the weight as it is multiplied with.
func (n *RMSNorm) weight(s *Scope) []float32 {
	w := append([]float32(nil), n.Weight.Value.Data...)
	s.round(w)
	return w
}

// Forward normalizes the rows of x. saved is nil where the scope is one of
// inference.
func (n *RMSNorm) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved *RMSNormSaved, err error) {
	w := n.weight(s)
	if err := checkWidth(n.Name, x, len(w)); err != nil {
		return tensor.Dense{}, nil, err
	}
	y = tensor.New(x.Rows, x.Cols)
	inverse := make([]float32, x.Rows)
	parallel.For(x.Rows, rowGrain(x.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row := x.Row(i)
			r := float32(1 / math.Sqrt(dot(row, row)/float64(len(row))+float64(n.Epsilon)))
			inverse[i] = r
			out := y.Row(i)
			for j, v := range row {
				out[j] = w[j] * float32(v*r)
			}
			s.round(out)
		}
	})
	if s.Inference {
		return y, nil, nil
	}
	kept, err := s.keep(x)
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	return y, &RMSNormSaved{kept, inverse}, nil
}

// normRows is how many rows of dw are summed up together, on one goroutine.
const normRows = 64

// Backward returns dX and adds to the gradient of the weight.
func (n *RMSNorm) Backward(s *Scope, saved *RMSNormSaved, dy tensor.Dense) (dx tensor.Dense, err error) {
	if saved == nil || saved.x == nil {
		return tensor.Dense{}, nothingSaved(n.Name)
	}
	w, x := n.weight(s), s.restore(&saved.x)
	if dy.Rows != x.Rows || dy.Cols != x.Cols {
		return tensor.Dense{}, fmt.Errorf("%s: the gradient is %d×%d, not %d×%d", n.Name, dy.Rows, dy.Cols, x.Rows, x.Cols)
	}
	dx = x // each row is read before it is written
	parts := tensor.New((x.Rows+normRows-1)/normRows, x.Cols)
	parallel.For(parts.Rows, 1, s.Threads, func(from, to int) {
		g := make([]float32, x.Cols)
		for p := from; p < to; p++ {
			part := parts.Row(p)
			for i := p * normRows; i < min((p+1)*normRows, x.Rows); i++ {
				r, row, d := saved.inverse[i], x.Row(i), dy.Row(i)
				for j, v := range d {
					g[j] = w[j] * v
					part[j] += float32(v * float32(row[j]*r))
				}
				mean := float32(dot(g, row) / float64(len(row)))
				c := float32(float32(r*r) * mean)
				for j, v := range row {
					row[j] = r * (g[j] - float32(v*c))
				}
				s.round(row)
			}
		}
	})
	for p := range parts.Rows {
		for j, v := range parts.Row(p) {
			n.Weight.Grad.Data[j] += v
		}
	}
	return dx, nil
}

// dot returns a·b in float64, in four sums.
func dot(a, b []float32) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float64(float64(a[i]) * float64(b[i]))
		s1 += float64(float64(a[i+1]) * float64(b[i+1]))
		s2 += float64(float64(a[i+2]) * float64(b[i+2]))
		s3 += float64(float64(a[i+3]) * float64(b[i+3]))
	}
	for ; i < len(a); i++ {
		s0 += float64(float64(a[i]) * float64(b[i]))
	}
	return (s0 + s1) + (s2 + s3)
}
