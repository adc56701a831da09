package nn

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHadamard compares the transform with its matrix in float64, and its square with the identity.
func TestHadamard(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for length, n := range map[int]int{1: 1, 16: 16, 64: 64, 80: 16, 96: 32, 33: 1} {
		x := make([]float32, length)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		y := slices.Clone(x)
		hadamard(y)
		for i := range y {
			want, block := 0.0, i/n*n
			for j := range n {
				sign := 1 - 2*(bits.OnesCount(uint((i-block)&j))&1)
				want += float64(sign) * float64(x[block+j]) / math.Sqrt(float64(n))
			}
			if math.Abs(float64(y[i])-want) > 1e-6 {
				t.Errorf("%d elements: element %d is %g, want %g", length, i, y[i], want)
			}
		}
		hadamard(y)
		for i := range y {
			if math.Abs(float64(y[i]-x[i])) > 1e-6 {
				t.Errorf("%d elements: element %d is %g, want %g again", length, i, y[i], x[i])
			}
		}
	}
}
