package decoder

import (
	"testing"

	"github.com/microscale-go/microscale/recipe"
)

// BenchmarkTrain is a forward and a backward pass of the default model of package
// train on 16 sequences of 128 tokens.
func BenchmarkTrain(b *testing.B) {
	config := Config{HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4, NumKeyValueHeads: 2}
	tokens, targets := text(16, 128)
	for _, r := range recipe.Recipes() {
		b.Run("recipe="+r.Name, func(b *testing.B) {
			m, err := New(config, Options{}, 1)
			if err != nil {
				b.Fatal(err)
			}
			s := scope(b, r.Name)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Train(s, tokens, targets, 16, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(tokens)*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
