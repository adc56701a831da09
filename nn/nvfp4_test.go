package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestNVFP4ByHand compares the forward pass of a fused layer under nvfp4 with its definition in
// float64, which does not use package quant. The weights of all parts share one global amax, because
// Transformer Engine concatenates them before it quantizes. With a global amax per part, the result
// differs.
func TestNVFP4ByHand(t *testing.T) {
	const tokens, in = 32, 64
	rng := rand.New(rand.NewPCG(19, 1))
	s := scopeOf(t, "nvfp4")
	l := NewFusedLinear("qkv", in, false, Part{"q", 64}, Part{"k", 32}, Part{"v", 32})
	w := l.Weight.Value
	for i := range w.Rows {
		for j := range in {
			w.Row(i)[j] = float32(rng.NormFloat64() * 0.02)
		}
	}
	w.Row(100)[5] = 0.9 // in v: the other parts have a far smaller amax
	s.Round(w)
	x := matrix(rng, tokens, in, 1)
	s.Round(x)
	y, _, err := l.Forward(s, x)
	if err != nil {
		t.Fatal(err)
	}

	// One 16×16 or 1×16 block scale, in E4M3, under one FP32 scale for the tensor.
	nvfp4 := func(x tensor.Dense, height int) tensor.Dense {
		values := tensor.New(x.Rows, x.Cols)
		largest := func(r0, r1, c0, c1 int) (amax float32) {
			for i := r0; i < r1; i++ {
				for _, v := range x.Row(i)[c0:c1] {
					amax = max(amax, float32(math.Abs(float64(v))))
				}
			}
			return amax
		}
		encode := 2688 / largest(0, x.Rows, 0, x.Cols)
		sixth := float32(1.0 / 6)
		for i := 0; i < x.Rows; i += height {
			for j := 0; j < x.Cols; j += 16 {
				scale := float32(nearest(float64(float32(largest(i, i+height, j, j+16)*float32(encode*sixth))), 3, -6, 448))
				multiplier := 1 / float32(scale*float32(1/encode))
				for r := i; r < i+height; r++ {
					for c := j; c < j+16; c++ {
						code := nearest(float64(float32(x.Row(r)[c]*multiplier)), 1, 0, 6)
						values.Row(r)[c] = float32(code * float64(scale) / float64(encode))
					}
				}
			}
		}
		return values
	}
	product := func(a, b tensor.Dense) []float64 {
		var c []float64
		for i := range a.Rows {
			for j := range b.Rows {
				c = append(c, dot(a.Row(i), b.Row(j)))
			}
		}
		return c
	}
	off := func(want []float64) (worst float64) {
		for i, v := range want {
			worst = max(worst, math.Abs(float64(y.Data[i])-v)/(1e-3+math.Abs(v)))
		}
		return worst
	}
	input := nvfp4(x, 1)
	if e := off(product(input, nvfp4(w, 16))); e > 1.0/128 { // BF16 of sums in another order
		t.Errorf("relative error of the output: got %g", e)
	}
	separate := tensor.New(w.Rows, in)
	for _, part := range [][2]int{{0, 64}, {64, 96}, {96, 128}} {
		values := nvfp4(w.View(part[0], part[1], 0, in), 16)
		for i := range values.Rows {
			copy(separate.Row(part[0]+i), values.Row(i))
		}
	}
	if e := off(product(input, separate)); e < 1.0/32 {
		t.Errorf("relative error with a global amax per part: got %g, want more", e)
	}
}

// nearest returns the nearest value to x, ties to even, of a format with the given mantissa bits,
// minimum normal exponent and largest value.
func nearest(x float64, mantissa, exponent int, largest float64) float64 {
	_, e := math.Frexp(x)
	step := math.Ldexp(1, max(e-1, exponent)-mantissa)
	return math.Copysign(min(math.RoundToEven(math.Abs(x)/step)*step, largest), x)
}
