package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/nn"
)

// TestAdamWKernels compares every kernel with updateGeneric, bit by bit, on slices of all lengths
// that end at the end of a page.
func TestAdamWKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	factors := adamwFactors{scale: 0.37, beta1: 0.9, fresh1: 0.1, beta2: 0.95, fresh2: 0.05, bias: 1e-3, epsilon: 1e-8, keep: 0.9999}
	edges := []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-20, -1e-30,
		float32(math.Inf(1))}
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 1027} {
		want := make([][]float32, 4) // w, g, m, v
		for i := range want {
			want[i] = make([]float32, n)
			for j := range want[i] {
				want[i][j] = float32(rng.NormFloat64())
				if rng.IntN(4) == 0 {
					want[i][j] = edges[rng.IntN(len(edges))]
				}
				if i == 3 {
					want[i][j] = float32(math.Abs(float64(want[i][j])))
				}
			}
		}
		before := make([][]float32, 4)
		for i := range before {
			before[i] = slices.Clone(want[i])
		}
		updateGeneric(want[0], want[1], want[2], want[3], &factors)
		cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
			got := make([][]float32, 4)
			for i := range got {
				raw := guard.Bytes(t, 4*n, guard.End)
				got[i] = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), n)
				copy(got[i], before[i])
			}
			updateParams(got[0], got[1], got[2], got[3], &factors)
			for i := range got {
				for j, g := range got[i] {
					w := want[i][j]
					if math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
						t.Fatalf("%s of element %d of %d: got %g, want %g", []string{"weight", "gradient", "m", "v"}[i], j, n, g, w)
					}
				}
			}
		})
	}
}

// TestGradientNorm compares the norm with one computed in order, and three threads with one.
func TestGradientNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, shape := range [][2]int{{1, 1}, {1, 5}, {3, 5001}, {300, 171}} {
		p := newParam("a", shape[0], shape[1])
		n := len(p.Grad.Data)
		want := 0.0
		for i := range p.Grad.Data {
			p.Grad.Data[i] = float32(rng.NormFloat64())
			want += float64(p.Grad.Data[i]) * float64(p.Grad.Data[i])
		}
		want = math.Sqrt(want)
		params := []*nn.Param{p, p}
		got := gradientNorm(params, 1)
		// Each of 2n additions, two square roots and the products round once.
		if math.Abs(got/(math.Sqrt2*want)-1) > float64(2*n+6)*0x1p-53 {
			t.Errorf("%d elements: got %g, want %g", n, got, math.Sqrt2*want)
		}
		if three := gradientNorm(params, 3); three != got {
			t.Errorf("%d elements: got %g on three threads, %g on one", n, three, got)
		}
	}
}
