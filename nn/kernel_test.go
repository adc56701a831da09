package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
)

// TestRowKernels compares every kernel with the portable code, bit by bit, on rows of all lengths that
// end at the end of a page.
func TestRowKernels(t *testing.T) {
	functions := map[string]func(x []float32){
		"round":    roundBF16,
		"exp":      func(x []float32) { exps(x, 0.75) },
		"exp, 0":   func(x []float32) { exps(x, 0) },
		"sigmoid":  sigmoids,
		"exp, NaN": func(x []float32) { exps(x, float32(math.NaN())) },
		"largest": func(x []float32) {
			if len(x) > 0 {
				x[0] = largest(x)
			}
		},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	edges := []float32{
		0, float32(math.Copysign(0, -1)), expMin, expMax, math.Nextafter32(expMin, -100), math.Nextafter32(expMax, 100), -expMax, -expMin,
		float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-30,
		math.Float32frombits(0x7f800001), math.Float32frombits(0xffc12345), math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000),
		math.Float32frombits(0x7f7fffff),
	}
	source := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			switch rng.IntN(4) {
			case 0:
				x[i] = edges[rng.IntN(len(edges))]
			case 1:
				x[i] = math.Float32frombits(rng.Uint32())
			default:
				x[i] = float32(rng.NormFloat64() * 30)
			}
		}
		return x
	}
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 4099} {
		x := source(n)
		raw := guard.Bytes(t, 4*n, guard.End)
		got := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), n)
		for name, f := range functions {
			cputest.Force(t, cpu.Plain)
			want := slices.Clone(x)
			f(want)
			cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
				copy(got, x)
				f(got)
				for i := range got {
					if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
						t.Fatalf("%s of element %d of %d, %g: got %#x, want %#x", name, i, n, x[i], g, w)
					}
				}
			})
		}
	}
}
