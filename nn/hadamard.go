package nn

import (
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// spreadBits is the number of bits of an element up to which heads are transformed before keys and values are quantized.
const spreadBits = 4

// spreadsHeads reports whether queries, keys and values are multiplied by a Hadamard matrix after rotation, each head by itself, and the
// output of the heads by its inverse:
//
//	(Q·H)·(K·H)ᵀ = Q·Kᵀ      P·(V·H)·H⁻¹ = P·V
//
// H is orthogonal and symmetric, so H⁻¹ = H. It spreads large elements over their head: elements of 4 bits cannot express both them and
// the others of their block (docs/results.md).
func (s *Scope) spreadsHeads() bool {
	return s.codesCache() && s.Cache.Element.StoredBits() <= spreadBits
}

// spread multiplies each head of x, which are side by side, by H, if heads are transformed. Values are rounded to the recipe's
// Activations.
func (a *Attention) spread(s *Scope, x tensor.Dense) {
	if !s.spreadsHeads() {
		return
	}
	parallel.For(x.Rows, parallel.RowGrain(x.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row := x.Row(i)
			for at := 0; at < len(row); at += a.HeadDim {
				hadamard(row[at : at+a.HeadDim])
			}
			s.round(row)
		}
	})
}

// hadamard multiplies x, block by block, by the Sylvester-Hadamard matrix (−1)^popcount(i&j)/√n, where n is the largest power of two
// that divides the number of elements.
func hadamard(x []float32) {
	n := len(x) & -len(x)
	scale := float32(1 / math.Sqrt(float64(n)))
	for ; len(x) > 0; x = x[n:] {
		for half := 1; half < n; half *= 2 {
			for i := 0; i < n; i += 2 * half {
				low, high := x[i:i+half], x[i+half:i+2*half]
				for j, v := range low {
					low[j], high[j] = v+high[j], v-high[j]
				}
			}
		}
		for i := range n {
			x[i] *= scale
		}
	}
}
