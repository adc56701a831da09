package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// RMSNorm scales each row to a root mean square of one (Zhang and Sennrich, "Root Mean Square Layer
// Normalization", 2019):
//
//	Y = w ∘ X·r                            r = 1/√(mean(X²) + ε), per row
//	dX = r·(w∘dY − X·r²·mean(w∘dY∘X))      dw += Σ over rows of dY∘X·r
//
// It computes in float32 with the weight rounded to the recipe's Activations, and rounds Y and dX
// once, at the end.
type RMSNorm struct {
	Name    string
	Epsilon float32
	Weight  *Param // 1 × width
}

type normSaved struct {
	x       *quant.Tensor
	inverse []float32 // r of each row
}

// Bytes implements Saved.
func (s *normSaved) Bytes() int { return tensorBytes(s.x) + 4*len(s.inverse) }

// NewRMSNorm returns a norm of rows of the given width whose weights are one.
func NewRMSNorm(name string, width int, epsilon float32) *RMSNorm {
	n := &RMSNorm{Name: name, Epsilon: epsilon, Weight: newParam(name+".weight", 1, width)}
	n.Weight.Fill(1)
	return n
}

// Params returns the weight.
func (n *RMSNorm) Params() []*Param { return []*Param{n.Weight} }

// weight returns the weight rounded to Activations, nil for a nil norm.
func (n *RMSNorm) weight(s *Scope) []float32 {
	if n == nil {
		return nil
	}
	w := n.Weight.Value.Data
	if s.Recipe.Activations.Element == format.F32 {
		return w
	}
	w = append([]float32(nil), w...)
	s.round(w)
	return w
}

// Forward normalizes the rows of x. saved is nil under Scope.Inference.
func (n *RMSNorm) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved Saved, err error) {
	w := n.weight(s)
	if err := checkWidth(n.Name, x, len(w)); err != nil {
		return tensor.Dense{}, nil, err
	}
	y = s.Arena.Dense(x.Rows, x.Cols)
	p := normPass{n: n, s: s, x: x, y: y, w: w}
	if !s.Inference {
		p.inverse = make([]float32, x.Rows)
	}
	parallel.ForState(x.Rows, parallel.RowGrain(x.Cols), s.Threads, p, normPass.rows)
	if s.Inference {
		return y, nil, nil
	}
	kept, err := s.save(x)
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	return y, &normSaved{kept, p.inverse}, nil
}

// A normPass is a forward pass.
type normPass struct {
	n       *RMSNorm
	s       *Scope
	x, y    tensor.Dense
	w       []float32 // rounded
	inverse []float32 // r of each row; nil: not wanted
}

func (p normPass) rows(from, to int) {
	for i := from; i < to; i++ {
		r := p.n.normalize(p.s, p.y.Row(i), p.x.Row(i), p.w)
		if p.inverse != nil {
			p.inverse[i] = r
		}
	}
}

// normalize sets out to the norm of row, with the rounded weight w, and returns r.
func (n *RMSNorm) normalize(s *Scope, out, row, w []float32) (r float32) {
	r = float32(1 / math.Sqrt(dot(row, row)/float64(len(row))+float64(n.Epsilon)))
	for j, v := range row {
		out[j] = w[j] * float32(v*r)
	}
	s.round(out)
	return r
}

// inPlace normalizes consecutive parts of x that are as wide as the rounded weight w.
func (n *RMSNorm) inPlace(s *Scope, x, w []float32) {
	for ; len(x) > 0; x = x[len(w):] {
		n.normalize(s, x[:len(w)], x[:len(w)], w)
	}
}

// normRows is the number of rows that one goroutine adds up for dw. It is fixed, so that sums do not
// depend on threads.
const normRows = 64

// Backward returns dX and adds to the gradient of the weight. It consumes saved.
func (n *RMSNorm) Backward(s *Scope, saved Saved, dy tensor.Dense) (dx tensor.Dense, err error) {
	kept, _ := saved.(*normSaved)
	if kept == nil || kept.x == nil {
		return tensor.Dense{}, nothingSaved(n.Name)
	}
	w, x := n.weight(s), s.restore(&kept.x)
	if err := checkGradient(n.Name, dy, x.Rows, x.Cols); err != nil {
		return tensor.Dense{}, err
	}
	dx = x // in place: each row is read before it is written
	parts := tensor.New((x.Rows+normRows-1)/normRows, x.Cols)
	parallel.For(parts.Rows, 1, s.Threads, func(from, to int) {
		g := make([]float32, x.Cols)
		for p := from; p < to; p++ {
			part := parts.Row(p)
			for i := p * normRows; i < min((p+1)*normRows, x.Rows); i++ {
				r, row, d := kept.inverse[i], x.Row(i), dy.Row(i)
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
	if s.sequence() {
		return dx, n.addRanks(s, parts)
	}
	n.add(parts)
	return dx, nil
}

// add adds rows of sums to the gradient of the weight, in order.
func (n *RMSNorm) add(parts tensor.Dense) {
	for p := range parts.Rows {
		for j, v := range parts.Row(p) {
			n.Weight.Grad.Data[j] += v
		}
	}
}

// addRanks is add of the sums of all ranks, which have different tokens: their order is that of the
// tokens.
func (n *RMSNorm) addRanks(s *Scope, parts tensor.Dense) error {
	all, err := s.group(TrafficActivations).GatherAll(memory.Bytes(parts.Data))
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	for _, data := range all {
		copy(memory.Bytes(parts.Data), data)
		n.add(parts)
	}
	return nil
}

// dot returns a·b in float64, in four interleaved sums.
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
