package nn

import (
	"math"
	"testing"
)

// TestExp compares exp with math.Exp at a million points and at the edges of its range.
func TestExp(t *testing.T) {
	check := func(x float32) {
		got, want := float64(exp(x)), math.Exp(float64(x))
		switch {
		case math.IsNaN(want):
			if !math.IsNaN(got) {
				t.Fatalf("exp(%g) = %g", x, got)
			}
		case want < 0x1p-126:
			if got > 0x1p-125 || got < 0 {
				t.Fatalf("exp(%g) = %g", x, got)
			}
		case float32(want) > math.MaxFloat32:
			if !math.IsInf(got, 1) && got < 0.999999*math.MaxFloat32 {
				t.Fatalf("exp(%g) = %g, want +Inf", x, got)
			}
		default:
			_, e := math.Frexp(want)
			if ulp := math.Ldexp(1, e-24); math.Abs(got-want) > 2*ulp {
				t.Fatalf("exp(%g) = %g, %g ulp from %g", x, got, math.Abs(got-want)/ulp, want)
			}
		}
	}
	for i := range 1 << 20 {
		check((float32(i)/(1<<19) - 1) * 90)
	}
	inf := float32(math.Inf(1))
	for _, x := range []float32{0, float32(math.Copysign(0, -1)), 1e-30, -1e-30, 1, -1, 88.72283, 88.72284, 88.7229, -87.33654, -87.3366, 1e10,
		-1e10, inf, -inf, float32(math.NaN())} {
		check(x)
	}
	if exp(0) != 1 {
		t.Errorf("exp(0) = %g", exp(0))
	}
}
