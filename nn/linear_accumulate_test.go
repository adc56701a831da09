package nn

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// TestLinearAccumulate compares the products of a layer that accumulates as a matrix unit does with
// those of package gemm, and checks that each of the three uses its own promotion.
func TestLinearAccumulate(t *testing.T) {
	slow.Race(t, slow.Repeats)
	slow.Emulated(t, slow.OwnProducts)
	r, err := recipe.Lookup("tensorwise")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range [][2]string{{"accumulate", "hopper-wgmma"}, {"use_split_accumulator", "dgrad"}} {
		if err := r.Set(set[0], set[1]); err != nil {
			t.Fatal(err)
		}
	}
	const tokens, in, out = 256, 512, 384
	s := runStep(t, Scope{Recipe: r}, tokens, in, out)
	fp32 := r
	fp32.Accumulate = [3]mma.Accumulator{}
	plain := runStep(t, Scope{Recipe: fp32}, tokens, in, out)
	results := func(s *step) [3]tensor.Dense { return [3]tensor.Dense{s.y, s.dx, s.dw} }
	for g, want := range results(s) {
		p := s.products[g]
		if int(p.GEMM) != g {
			t.Fatalf("product %d is %s", g, p.GEMM)
		}
		c := tensor.New(want.Rows, want.Cols)
		o := gemm.Options{Accumulator: r.Accumulate[g]}
		switch p.GEMM {
		case recipe.Fprop:
			o.Bias = slices.Clone(s.layer.Bias.Value.Row(0))
			roundBF16(o.Bias)
		case recipe.Wgrad:
			o.Accumulate = true
			for i := range c.Data {
				c.Data[i] = s.startGrad
			}
		}
		if err := gemm.Mul(c, p.A, p.B, o); err != nil {
			t.Fatal(err)
		}
		if p.GEMM != recipe.Wgrad {
			roundBF16(c.Data)
		}
		differ := 0
		for i := range c.Rows {
			if !slices.Equal(c.Row(i), want.Row(i)) {
				t.Fatalf("%s accumulated as %s: row %d differs from the product", p.GEMM, r.Accumulate[g], i)
			}
			for j, x := range results(plain)[g].Row(i) {
				if x != c.Row(i)[j] {
					differ++
				}
			}
		}
		if differ == 0 {
			t.Errorf("%s accumulated as %s: equal to FP32", p.GEMM, r.Accumulate[g])
		}
	}

	s = runStep(t, Scope{Recipe: r, Calibrating: true}, tokens, in, out)
	plain = runStep(t, Scope{Recipe: fp32, Calibrating: true}, tokens, in, out)
	if !slices.Equal(s.y.Data, plain.y.Data) {
		t.Error("a calibrating pass accumulates in FP32: got another result")
	}
}
