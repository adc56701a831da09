package format_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// TestStochasticProbability rounds x at j/256 of the distance between neighbors with 256 evenly
// spaced random words. Exactly j of them must round up.
func TestStochasticProbability(t *testing.T) {
	const draws = 256
	eachSpec(t, 16, func(t *testing.T, s *spec) {
		c := format.Conversion{Rounding: format.Stochastic}
		values, _ := s.grid()
		every := 1
		if len(values) > 256 {
			every = 331
		}
		for low := 0; low+1 < len(values); low += every {
			width := values[low+1] - values[low]
			for _, j := range []int{0, 1, 2, 85, 127, 128, 129, 254, 255} {
				exact := values[low] + width*float64(j)/draws
				x := float32(exact)
				if float64(x) != exact {
					continue // not a float32; only for subnormal BF16
				}
				for _, negative := range []bool{false, true} {
					if negative {
						x = -x
					}
					ups, sum := 0, 0.0
					for i := range draws {
						// The fraction has 8 bits, so the low 24 bits must not matter.
						random := uint32(i)<<24 | uint32(i*0x9e3779b1)>>8
						code := s.format.EncodeWith(x, c, random)
						sum += math.Abs(float64(s.format.Decode(code)))
						switch code {
						case s.sign(uint32(low)+1, negative):
							ups++
						case s.sign(uint32(low), negative):
						default:
							t.Fatalf("%v: got %#x, want one of its neighbors", x, code)
						}
					}
					if ups != j {
						t.Fatalf("%v: rounded up in %d of %d draws, want %d", x, ups, draws, j)
					}
					if mean := sum / draws; math.Abs(mean-exact) > 1e-12*exact {
						t.Fatalf("mean of %v: got %v", x, mean)
					}
				}
			}
		}
	})
}

// TestStochasticTail checks small fractions: below 2^-32 of a step they never round up, and
// 2^-32 rounds up only for the largest random word.
func TestStochasticTail(t *testing.T) {
	c := format.Conversion{Rounding: format.Stochastic}
	step := format.E2M1.Smallest()
	for _, tc := range []struct {
		x      float32
		random uint32
		want   uint32
	}{
		{0, math.MaxUint32, 0},
		{step * 0x1p-32, math.MaxUint32, 1},
		{step * 0x1p-32, math.MaxUint32 - 1, 0},
		{step * 0x1.fffffep-33, math.MaxUint32, 0},
		{step * 0x1p-31, math.MaxUint32 - 1, 1},
		{step * 0x1p-31, math.MaxUint32 - 2, 0},
		{math.SmallestNonzeroFloat32, math.MaxUint32, 0},
		{step * 0x1.fffffep-1, 0x100 - 1, 0},
		{step * 0x1.fffffep-1, 0x100, 1}, // 1 - 2^-24 of a step
		{5, 0x80000000 - 1, 6},
		{5, 0x80000000, 7},
		{7, 0, 7},
		{7, math.MaxUint32, 7}, // saturates
		{float32(math.Inf(1)), math.MaxUint32, 7},
	} {
		if got := format.E2M1.EncodeWith(tc.x, c, tc.random); got != tc.want {
			t.Errorf("%v with random %#x: got %#x, want %#x", tc.x, tc.random, got, tc.want)
		}
	}
}

// TestOthersIgnoreRandom checks that only stochastic rounding depends on the random bits.
func TestOthersIgnoreRandom(t *testing.T) {
	for _, r := range deterministic {
		c := format.Conversion{Rounding: r}
		for _, x := range midpoints(newOracle(specs[0])) {
			if a, b := format.E4M3.EncodeWith(x, c, 0), format.E4M3.EncodeWith(x, c, math.MaxUint32); a != b {
				t.Fatalf("%v: %v: got %#x or %#x, depending on the random bits", r, x, a, b)
			}
		}
	}
}

// TestStochasticSlice compares EncodeSliceStochastic with EncodeWith: for the value of every
// code and its float32 neighbors, points between codes, tiny, huge and special values, with
// smallest, largest and random words.
func TestStochasticSlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range format.All() {
		if f.Bits() > 8 {
			continue
		}
		var src []float32
		for i := range 1 << f.Bits() {
			x := f.Decode(uint32(i))
			src = append(src, x, math.Nextafter32(x, 0), math.Nextafter32(x, float32(math.Inf(1))), x*1.25, x*1.4375, x*float32(1+rng.Float64()))
		}
		for e := -149; e < 128; e++ {
			x := float32(math.Ldexp(1, e))
			src = append(src, x, -x, x*float32(1+rng.Float64()), -x*float32(1+rng.Float64()))
		}
		src = append(src, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, float32(math.Copysign(0, -1)))
		for _, c := range []format.Conversion{{}, {NaN: format.KeepSign}, {Overflow: format.SaturateFinite}, {Overflow: format.NonSaturating}} {
			for _, fixed := range []uint32{0, 1, 1 << 31, math.MaxUint32, 12345} {
				random := make([]uint32, len(src))
				for i := range random {
					if random[i] = fixed; fixed == 12345 {
						random[i] = rng.Uint32()
					}
				}
				got := make([]byte, len(src))
				f.EncodeSliceStochastic(got, src, random, c)
				c.Rounding = format.Stochastic
				for i, x := range src {
					if want := byte(f.EncodeWith(x, c, random[i])); got[i] != want {
						t.Fatalf("%s: %g (%#x) with random %#x: got %#x, want %#x", f, x, math.Float32bits(x), random[i], got[i], want)
					}
				}
			}
		}
	}
}
