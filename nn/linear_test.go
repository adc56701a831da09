package nn

import (
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// normal returns a matrix of normal values in BF16.
func normal(rng *rand.Rand, rows, cols int, std float64) tensor.Dense {
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64() * std)
	}
	roundBF16(x.Data, x.Data)
	return x
}

func TestLinearRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, r := range recipe.Recipes() {
		l := NewLinear("proj", 128, 64, true)
		l.Weight.InitNormal(0.02, 1)
		s := &Scope{Recipe: r}
		y, saved, err := l.Forward(s, normal(rng, 128, 128, 1))
		if err != nil {
			t.Fatal(r.Name, err)
		}
		dx, err := l.Backward(s, saved, normal(rng, 128, 64, 1e-3))
		if err != nil {
			t.Fatal(r.Name, err)
		}
		t.Log(r.Name, y.At(0, 0), dx.At(0, 0), l.Weight.Grad.At(0, 0), l.Bias.Grad.At(0, 0))
	}
}
