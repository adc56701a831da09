package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/quant"
)

// TestGlobalScaleRange multiplies NVFP4 operands whose global scales are those of gradients late in
// training, and others far from one. The int8 kernel supports them all, within the bound.
func TestGlobalScaleRange(t *testing.T) {
	const m, n, k = 37, 70, 1056
	cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
		r := rand.New(rand.NewPCG(8, 9))
		a, b := operand(t, r, quant.NVFP4, quant.Rowwise, m, k), operand(t, r, quant.NVFP4, quant.Columnwise, n, k)
		a.Global, b.Global = 1, 1
		product, magnitude, err := Reference(a, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range [][2]int{{-20, -18}, {-25, -20}, {-60, -50}, {-70, -50}, {50, 40}} {
			a.Global, b.Global = float32(math.Ldexp(1, e[0])), float32(math.Ldexp(1, e[1]))
			for _, accumulate := range []bool{false, true} {
				o := Options{Alpha: 0.75, Accumulate: accumulate}
				kernel, err := Choose(a, b, o)
				if err != nil {
					t.Fatal(err)
				}
				if tier == cpu.AVX512 && kernel.Name != "int8-nv-avx512" {
					t.Errorf("global scales 2^%d and 2^%d: got kernel %s, want int8-nv-avx512", e[0], e[1], kernel.Name)
				}
				c, check := framed(t, m, n)
				scale := math.Ldexp(0.75, e[0]+e[1])
				initial := float32(0)
				if accumulate {
					initial = float32(scale)
					for i := range m {
						for j := range n {
							c.Set(i, j, initial)
						}
					}
				}
				if err := Mul(c, a, b, o); err != nil {
					t.Fatal(err)
				}
				check()
				name := fmt.Sprintf("kernel %s, global scales 2^%d and 2^%d, accumulate %t", kernel.Name, e[0], e[1], accumulate)
				for i := range m {
					for j := range n {
						at := i*n + j
						want := scale*product[at] + float64(initial)
						// The partial sums over K are rounded with the initial value.
						tolerance := bound(k, scale, magnitude[at]+1)
						if d := math.Abs(float64(c.At(i, j)) - want); !(d <= tolerance) {
							t.Fatalf("%s: at (%d,%d): got %g, want %g ± %g", name, i, j, c.At(i, j), want, tolerance)
						}
					}
				}
			}
		}
	})
}
