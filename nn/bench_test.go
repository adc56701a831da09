package nn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/recipe"
)

// BenchmarkLinear runs a forward and a backward pass of Linear(1024, 1024) on 4096 tokens, including
// the quantization of the weight.
func BenchmarkLinear(b *testing.B) {
	const tokens, width = 32 * 128, 1024
	rng := rand.New(rand.NewPCG(1, 2))
	x, dy := matrix(rng, tokens, width, 1), matrix(rng, tokens, width, 1)
	for _, r := range recipe.Recipes() {
		b.Run(fmt.Sprintf("recipe=%s/tokens=%d/in=%d/out=%d", r.Name, tokens, width, width), func(b *testing.B) {
			l := NewLinear("proj", width, width, true)
			l.Weight.InitNormal(0.02, 1)
			s := &Scope{Recipe: r}
			b.ReportAllocs()
			for b.Loop() {
				_, saved, err := l.Forward(s, x)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := l.Backward(s, saved, dy); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(3*2*tokens*width*width*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
