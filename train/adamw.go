package train

import (
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/cpu"
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

// moments are the running averages of the gradient and of its square, for the rows of a parameter
// that are optimized.
type moments struct {
	m, v   []float32
	decays bool // weight decay applies
}

func newMoments(params []*nn.Param) []moments {
	all := make([]moments, len(params))
	for i, p := range params {
		n := p.Value.Rows * p.Value.Cols
		all[i] = moments{make([]float32, n), make([]float32, n), decays(p)}
	}
	return all
}

// decays reports whether weight decay applies to a parameter.
func decays(p *nn.Param) bool {
	return p.Value.Rows > 1 && !strings.Contains(p.Name, "embed_tokens")
}

// step updates params in step t, counted from 1, with gradients multiplied by scale.
func (a *AdamW) step(params []*nn.Param, state []moments, t int, rate, scale float64, threads int) {
	// m/(1-β₁ᵗ)/(√(v/(1-β₂ᵗ)) + ε) = m·bias/(√v + ε·root)
	root := math.Sqrt(1 - math.Pow(a.Beta2, float64(t)))
	f := adamwFactors{
		scale: float32(scale),
		beta1: float32(a.Beta1), fresh1: float32(1 - a.Beta1),
		beta2: float32(a.Beta2), fresh2: float32(1 - a.Beta2),
		bias: float32(rate * root / (1 - math.Pow(a.Beta1, float64(t)))), epsilon: float32(a.Epsilon * root),
	}
	for i, p := range params {
		f := f
		f.keep = 1
		if state[i].decays {
			f.keep = float32(1 - rate*a.Decay)
		}
		m, v := state[i].m, state[i].v
		w, g := p.Value.Data, p.Grad.Data
		parallel.For(len(m), 1<<14, threads, func(from, to int) {
			updateParams(w[from:to], g[from:to], m[from:to], v[from:to], &f)
		})
	}
}

// adamwFactors are the factors of a step, in the layout that kernels read.
type adamwFactors struct{ scale, beta1, fresh1, beta2, fresh2, bias, epsilon, keep float32 }

// updateParams updates weights and moments of equal length, with the kernel of this processor if there is
// one.
func updateParams(w, g, m, v []float32, f *adamwFactors) {
	for i := range adamwKernels {
		if k := &adamwKernels[i]; cpu.Uses(k.needs) && len(w) >= k.unit {
			n := len(w) / k.unit
			k.update(&w[0], &g[0], &m[0], &v[0], n, f)
			n *= k.unit
			w, g, m, v = w[n:], g[n:], m[n:], v[n:]
		}
	}
	updateGeneric(w, g, m, v, f)
}

// An adamwKernel updates n units of elements with the bits of updateGeneric. The table is in
// kernel_amd64.go, fastest first.
type adamwKernel struct {
	needs  cpu.Set
	unit   int // elements
	update func(w, g, m, v *float32, n int, f *adamwFactors)
}

func init() {
	cpu.AddTable("train", &adamwKernels, func(k *adamwKernel) (string, cpu.Set) { return "AdamW", k.needs })
}

func updateGeneric(w, g, m, v []float32, f *adamwFactors) {
	for j := range w {
		gj := float32(g[j] * f.scale)
		m[j] = float32(f.beta1*m[j]) + float32(f.fresh1*gj)
		v[j] = float32(f.beta2*v[j]) + float32(f.fresh2*float32(gj*gj))
		w[j] = float32(f.keep*w[j]) - float32(f.bias*m[j])/(float32(math.Sqrt(float64(v[j])))+f.epsilon)
	}
}
