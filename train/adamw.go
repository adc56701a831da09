package train

import (
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
)

// AdamW is the optimizer of Loshchilov and Hutter, "Decoupled weight decay
// regularization" (ICLR 2019), algorithm 2, in FP32 on FP32 master weights:
//
//	m ← β₁·m + (1-β₁)·g
//	v ← β₂·v + (1-β₂)·g²
//	w ← w - rate·(m/(1-β₁ᵗ)/(√(v/(1-β₂ᵗ)) + ε) + decay·w)
//
// Vectors (norms, biases) and the embedding do not decay.
type AdamW struct {
	Beta1, Beta2, Epsilon, Decay float64
}

// DefaultAdamW has the constants of the Llama papers.
var DefaultAdamW = AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Decay: 0.1}

// moments are the running averages of a parameter's gradient and of its square.
type moments struct{ m, v []float32 }

func newMoments(params []*nn.Param) []moments {
	all := make([]moments, len(params))
	for i, p := range params {
		n := p.Value.Rows * p.Value.Cols
		all[i] = moments{make([]float32, n), make([]float32, n)}
	}
	return all
}

// decays reports whether a parameter decays.
func decays(p *nn.Param) bool {
	return p.Value.Rows > 1 && !strings.Contains(p.Name, "embed_tokens")
}

// step makes one step, t counted from 1, with gradients times scale.
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

// gradientNorm returns the Euclidean norm of all gradients together: a sum in
// float64 over each parameter, and then over the parameters, in their order.
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

// clipScale returns the factor that brings gradients of a norm down to limit;
// without a limit, 0, it is 1.
func clipScale(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}
