package convert

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestCountNonFinite puts NaN, Inf and the largest finite value at every index of slices of
// every length.
func TestCountNonFinite(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, f := range []*format.Scalar{format.BF16, format.FP16, format.F32} {
		special := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), f.Max(), -f.Max(), -f.Smallest(), 0}
		for n := range 40 {
			for range 50 {
				values, want := make([]float32, n), 0
				for i := range values {
					k := random.IntN(len(special))
					if values[i] = special[k]; k < 3 {
						want++
					}
				}
				raw := make([]byte, n*f.Bits()/8)
				if err := tensor.ToBytes(raw, values, f); err != nil {
					t.Fatal(err)
				}
				if got := countNonFinite(raw, f); got != want {
					t.Fatalf("%v: %v: got %d, want %d", f, values, got, want)
				}
			}
		}
	}
}
