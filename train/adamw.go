package train

import (
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
)

// AdamW configures the optimizer of Loshchilov and Hutter, "Decoupled weight decay regularization"
// (ICLR 2019), algorithm 2, in FP32 on FP32 master weights:
//
//	m ← β₁·m + (1-β₁)·g
//	v ← β₂·v + (1-β₂)·g²
//	w ← w - rate·(m/(1-β₁ᵗ)/(√(v/(1-β₂ᵗ)) + ε) + decay·w)
//
// Weight decay does not apply to vectors (norms, biases) and the embedding.
type AdamW struct {
	Beta1, Beta2, Epsilon, Decay float64
}

// moments are the running averages of the gradient and of its square, for one parameter.
type moments struct{ m, v []float32 }

func newMoments(params []*nn.Param) []moments {
	all := make([]moments, len(params))
	for i, p := range params {
		n := p.Value.Rows * p.Value.Cols
		all[i] = moments{make([]float32, n), make([]float32, n)}
	}
	return all
}

// decays reports whether weight decay applies to a parameter.
func decays(p *nn.Param) bool {
	return p.Value.Rows > 1 && !strings.Contains(p.Name, "embed_tokens")
}

// step updates params in step t, counted from 1, with gradients multiplied by scale.
func (a *AdamW) step(params []*nn.Param, state []moments, t int, rate, scale float64, threads int) {
	beta1, beta2 := float32(a.Beta1), float32(a.Beta2)
	fresh1, fresh2 := float32(1-a.Beta1), float32(1-a.Beta2)
	// m/(1-β₁ᵗ)/(√(v/(1-β₂ᵗ)) + ε) = m·bias/(√v + ε·root)
	root := math.Sqrt(1 - math.Pow(a.Beta2, float64(t)))
	bias := float32(rate * root / (1 - math.Pow(a.Beta1, float64(t))))
	epsilon := float32(a.Epsilon * root)
	factor := float32(scale)
	for i, p := range params {
		keep := float32(1)
		if decays(p) {
			keep = float32(1 - rate*a.Decay)
		}
		m, v := state[i].m, state[i].v
		w, g := p.Value.Data, p.Grad.Data
		parallel.For(len(m), 1<<14, threads, func(from, to int) {
			for j := from; j < to; j++ {
				gj := float32(g[j] * factor)
				m[j] = float32(beta1*m[j]) + float32(fresh1*gj)
				v[j] = float32(beta2*v[j]) + float32(fresh2*float32(gj*gj))
				w[j] = float32(keep*w[j]) - float32(bias*m[j])/(float32(math.Sqrt(float64(v[j])))+epsilon)
			}
		})
	}
}

// gradientNorm returns the Euclidean norm of all gradients. It adds squares in float64 within each
// parameter, then the sums of the parameters in order.
func gradientNorm(params []*nn.Param, threads int) float64 {
	sums := make([]float64, len(params))
	parallel.For(len(params), 1, threads, func(from, to int) {
		for i := from; i < to; i++ {
			var sum float64
			for _, g := range params[i].Grad.Data {
				sum += float64(float64(g) * float64(g))
			}
			sums[i] = sum
		}
	})
	var total float64
	for _, s := range sums {
		total += s
	}
	return math.Sqrt(total)
}

// clipScale returns the factor that reduces gradients of the given norm to limit, or 1 if limit is 0.
func clipScale(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}
