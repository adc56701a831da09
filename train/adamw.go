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
		if decays(p) {
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
		if k := &adamwKernels[i]; k.tier <= cpu.Best() && len(w) >= k.unit {
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
	tier   cpu.Tier
	unit   int // elements
	update func(w, g, m, v *float32, n int, f *adamwFactors)
}

func updateGeneric(w, g, m, v []float32, f *adamwFactors) {
	for j := range w {
		gj := float32(g[j] * f.scale)
		m[j] = float32(f.beta1*m[j]) + float32(f.fresh1*gj)
		v[j] = float32(f.beta2*v[j]) + float32(f.fresh2*float32(gj*gj))
		w[j] = float32(f.keep*w[j]) - float32(f.bias*m[j])/(float32(math.Sqrt(float64(v[j])))+f.epsilon)
	}
}

// normChunk is the number of elements whose squares gradientNorm adds together. It is fixed, so that
// the norm does not depend on threads.
const normChunk = 1 << 14

// gradientNorm returns the Euclidean norm of all gradients, in float64: the sums of squares of chunks
// of each parameter, added in order.
func gradientNorm(params []*nn.Param, threads int) float64 {
	var total float64
	for _, p := range params {
		g := p.Grad.Data
		sums := make([]float64, (len(g)+normChunk-1)/normChunk)
		parallel.For(len(sums), 1, threads, func(from, to int) {
			for i := from; i < to; i++ {
				sums[i] = sumSquares(g[i*normChunk : min((i+1)*normChunk, len(g))])
			}
		})
		for _, s := range sums {
			total += s
		}
	}
	return math.Sqrt(total)
}

// sumSquares adds squares in float64, in four interleaved sums.
func sumSquares(x []float32) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		s0 += float64(float64(x[0]) * float64(x[0]))
		s1 += float64(float64(x[1]) * float64(x[1]))
		s2 += float64(float64(x[2]) * float64(x[2]))
		s3 += float64(float64(x[3]) * float64(x[3]))
	}
	for _, v := range x {
		s0 += float64(float64(v) * float64(v))
	}
	return (s0 + s1) + (s2 + s3)
}

// clipScale returns the factor that reduces gradients of the given norm to limit, or 1 if limit is 0.
func clipScale(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}
