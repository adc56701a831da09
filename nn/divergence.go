package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Divergence returns the Kullback–Leibler divergence of the softmax q of each row of logits from the softmax p of the same row of
// original, in nats, and replaces logits by weight times its gradient, rounded to the recipe's Activations:
//
//	KL = Σ p·(ln p − ln q)      dlogits = q − p
//
// Sums over a row are in float64. original is overwritten.
func Divergence(s *Scope, logits, original tensor.Dense, weight float32) (kl []float64, err error) {
	if logits.Rows != original.Rows || logits.Cols != original.Cols {
		return nil, fmt.Errorf("divergence: got logits %d×%d of %d×%d", logits.Rows, logits.Cols, original.Rows, original.Cols)
	}
	kl = make([]float64, logits.Rows)
	parallel.For(logits.Rows, parallel.RowGrain(8*logits.Cols), s.Threads, func(from, to int) {
		diff := make([]float32, logits.Cols) // of the logits
		for i := from; i < to; i++ {
			q, p := logits.Row(i), original.Row(i)
			for j, v := range p {
				diff[j] = v - q[j]
			}
			topQ, topP := maximum(q), maximum(p)
			exps(q, topQ)
			exps(p, topP)
			var sumQ, sumP, shift float64
			for j, v := range p {
				sumQ += float64(q[j])
				sumP += float64(v)
				shift += float64(v) * float64(diff[j])
			}
			kl[i] = shift/sumP - (math.Log(sumP) + float64(topP) - math.Log(sumQ) - float64(topQ))
			shareQ, shareP := float32(float64(weight)/sumQ), float32(float64(weight)/sumP)
			for j, v := range p {
				q[j] = float32(q[j]*shareQ) - float32(v*shareP)
			}
			s.round(q)
		}
	})
	return kl, nil
}
