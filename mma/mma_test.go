package mma_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

func f32(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }

// repeated returns n copies of the code of x.
func repeated(t *mma.Type, n int, x float64) []uint64 {
	code := uint64(t.Scalar.EncodeWith(float32(x), format.Conversion{Overflow: format.NonSaturating}, 0))
	return slices.Repeat([]uint64{code}, n)
}

// products returns n operands: the given values, then zeros.
func products(t *mma.Type, n int, values ...float64) []uint64 {
	codes := make([]uint64, n)
	for i, x := range values {
		codes[i] = repeated(t, 1, x)[0]
	}
	return codes
}

// TestRules has a short case for each rule.
func TestRules(t *testing.T) {
	const large, tiny = 0x1p127, 0x1p-60
	ones := func(n int) []float64 { return slices.Repeat([]float64{1}, n) }
	for _, tc := range []struct {
		name, model, operands string
		a, b                  []float64
		c                     float64
		want                  uint32
	}{
		{"a zero product has its own exponent", "ampere-mma", "bf16", append([]float64{0}, slices.Repeat([]float64{tiny}, 7)...),
			append([]float64{large}, slices.Repeat([]float64{tiny}, 7)...), 0, 0x04e00000},
		{"overflow is Inf", "ampere-mma", "bf16", slices.Repeat([]float64{large}, 8), ones(8), 0, 0x7f800000},
		{"rounding is toward zero", "ampere-mma", "bf16", []float64{0x1p80}, ones(1), math.MaxFloat32, 0x7f7fffff},
		{"a tiny negative C rounds the sum down", "cdna3-mfma", "bf16", ones(1), ones(1), -0x1p-30, 0x3f7fffff},
		{"FP8 ignores such a C", "cdna3-mfma", "e4m3fnuz", ones(1), ones(1), -0x1p-30, 0x3f800000},
		{"FP8 keeps a C of 25 bits below", "cdna3-mfma", "e4m3fnuz", ones(1), ones(1), -0x1p-25, 0x3f7fffff},
		{"a product beyond FP32 is Inf", "cdna3-mfma", "bf16", []float64{0x1p64, -large}, []float64{0x1p64, 1}, 0, 0x7f800000},
		{"not on NVIDIA", "ampere-mma", "bf16", []float64{0x1p64, -large}, []float64{0x1p64, 1}, 0, 0x7f000000},
		{"the sum of products keeps 32 bits below C, as in MMA-Sim", "cdna3-mfma", "f16", []float64{-0x1p-8, 0x1.02p-14}, []float64{1, 0x1p-11},
			1, 0x3f7f0001},
		{"a subnormal total keeps 31 bits below 2^-126", "cdna3-mfma", "bf16", []float64{0x1p-75, 0x1p-79}, []float64{0x1p-75, 0x1p-79}, 0, 0},
		{"a multiply-add of FP32 rounds once", "cdna1-mfma", "f32", []float64{0x1.0002p-24}, []float64{1 - 0x1p-15}, 1 + 0x1p-23, 0x3f800001},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := unit(t, tc.model, tc.operands, "f32", "-")
			got := u.Dot(products(u.A, u.K, tc.a...), products(u.B, u.K, tc.b...), f32(tc.c), nil, nil)
			if got != uint64(tc.want) {
				t.Errorf("%s: got %08x, want %08x", tc.model, got, tc.want)
			}
		})
	}
}

// TestFP4Zeros checks the exponent of a block whose dot product is zero: e₀ if all products are zero,
// and that of its scales if they cancel.
func TestFP4Zeros(t *testing.T) {
	u := unit(t, "blackwell-mxf4", "e2m1", "f32", "ue8m0")
	ones := repeated(u.A, 64, 1)
	zeros := append(make([]uint64, 32), ones[:32]...)
	signs := slices.Clone(ones)
	for i := 0; i < 32; i += 2 {
		signs[i] |= 8
	}
	if got := u.Dot(zeros, ones, 0, []byte{254, 127}, []byte{254, 127}); got != 0x42000000 {
		t.Errorf("a block of zeros and 32 products of 1·1: got %08x, want 42000000", got)
	}
	if got := u.Dot(signs, ones, 0, []byte{187, 127}, []byte{127, 127}); got != 0 {
		t.Errorf("a block that cancels and 32 products of 1·1: got %08x, want 0", got)
	}
}

// TestHalfZeros checks e₀ of units with FP16 results: beside a zero, the unit of the alignment is
// 2^(e₀-F). A product of that size breaks the tie of 2^-25 between 0 and 2^-24; half of it is cut.
func TestHalfZeros(t *testing.T) {
	for model, exponent := range map[string]int{
		"volta-mma": -19 - 23, "turing-mma": -20 - 24, "ampere-mma": -20 - 24, "ada-mma": -20 - 24,
		"hopper-mma": -21 - 25, "blackwell-mma": -21 - 25, "rtxblackwell-mma": -21 - 25, "hopper-wgmma": -21 - 25, "blackwell-f16": -21 - 25,
	} {
		u := unit(t, model, "f16", "f16", "-")
		for below, want := range []uint64{1, 0} {
			small := math.Ldexp(1, exponent/2-below)
			a, b := products(u.A, u.K, 0x1p-12, small), products(u.B, u.K, 0x1p-13, math.Ldexp(1, exponent/2))
			if got := u.Dot(a, b, 0, nil, nil); got != want {
				t.Errorf("%s: 2^-25 + 2^%d: got %#x, want %#x", model, exponent-below, got, want)
			}
		}
	}
}

// TestEmulatedHalf checks that FP8 mma.sync on Hopper aligns to 25 bits also for FP16 results, as the
// FP16 unit does: 2^-25 decides a tie.
func TestEmulatedHalf(t *testing.T) {
	u := unit(t, "hopper-mma", "e5m2", "f16", "-")
	a, b := products(u.A, 32, 1, 0x1p-6, 0, 0, 0x1p-14), products(u.B, 32, 1, 0x1p-5, 0, 0, 0x1p-11)
	if got := u.Dot(a, b, 0, nil, nil); got != 0x3c01 {
		t.Errorf("1 + 2^-11 + 2^-25: got %#x, want 0x3c01", got)
	}
}

// TestEmulatedSpecial checks NaN and Inf in the IEEE addition of C: the unit returns its own NaN.
func TestEmulatedSpecial(t *testing.T) {
	for _, tc := range []struct {
		out            string
		infinity, c    uint64 // c: the accumulator beside a finite sum, and beside +Inf
		finite, beside uint64
	}{
		{"f32", 0x7f800000, 0x7fc00001, 0x7fffffff, 0x7fffffff},
		{"f32", 0x7f800000, 0xff800000, 0xff800000, 0x7fffffff},
		{"f32", 0x7f800000, 0x3f800000, 0x40000000, 0x7f800000},
		{"f16", 0x7c00, 0x7e01, 0x7fff, 0x7fff},
		{"f16", 0x7c00, 0xfc00, 0xfc00, 0x7fff},
		{"f16", 0x7c00, 0x3c00, 0x4000, 0x7c00},
	} {
		u := unit(t, "hopper-mma", "e5m2", tc.out, "-")
		one, infinite := products(u.A, 32, 1), products(u.A, 32, math.Inf(1))
		if got := u.Dot(one, one, tc.c, nil, nil); got != tc.finite {
			t.Errorf("%s: 1 + %#x: got %#x, want %#x", tc.out, tc.c, got, tc.finite)
		}
		if got := u.Dot(infinite, one, tc.c, nil, nil); got != tc.beside {
			t.Errorf("%s: Inf + %#x: got %#x, want %#x", tc.out, tc.c, got, tc.beside)
		}
	}
}

// TestHopperStops checks that products of 1·1 do not change a sum of 16384: each is below the unit of
// the alignment.
func TestHopperStops(t *testing.T) {
	for _, tc := range []struct {
		model string
		want  float64
	}{{"hopper-wgmma", 16384}, {"blackwell-f8f6f4", 32768}} {
		u := unit(t, tc.model, "e4m3", "f32", "-")
		ones := repeated(u.A, 1024*32, 1)
		if got := u.Out.Value(u.Dot(ones, ones, 0, nil, nil)); got != tc.want {
			t.Errorf("%s: sum of 32768 products of 1·1: got %v, want %v", tc.model, got, tc.want)
		}
	}
	u := unit(t, "hopper-wgmma", "e4m3", "f32", "-")
	ones := repeated(u.A, 32, 1)
	_, steps := u.Explain(ones, ones, f32(16384), nil, nil)
	s := steps[0]
	if len(steps) != 1 || s.Exponent != 14 || s.Unit != 1 || s.Cut != "toward zero" || s.Value != 16384 {
		t.Errorf("got step %+v, want one with E = 14, truncated to multiples of 2^1, with result 16384", s)
	}
	if k := s.Terms[31]; k.Name != "k 31" || k.Value != 1 || k.Kept != 0 {
		t.Errorf("got last product %+v, want k 31, truncated from 1 to 0", k)
	}
}

// TestExplain checks that the steps end in the result of Dot, and that the aligned terms add up to the
// sum.
func TestExplain(t *testing.T) {
	for _, m := range mma.Models() {
		for _, u := range m.Units() {
			source := mmatest.Source(7)
			for range 64 {
				c := mmatest.Hard(u, 2*u.K, &source)
				result, steps := u.Explain(c.A, c.B, c.C, c.ScaleA, c.ScaleB)
				last := steps[len(steps)-1]
				if want := c.Dot(u); result != want || last.Code != want {
					t.Fatalf("%s %s×%s: Explain returned %#x with a last step of %#x, want %#x as Dot", m, u.A, u.B, result, last.Code, want)
				}
				for _, s := range steps {
					sum := 0.0
					for _, term := range s.Terms {
						if term.Name == "" {
							t.Fatalf("%s: a term of %q has no name", m, s.Title)
						}
						sum += term.Kept
					}
					if s.Cut != "" && sum != s.Sum {
						t.Fatalf("%s %s×%s: %q: the aligned terms add up to %v, want the sum %v", m, u.A, u.B, s.Title, sum, s.Sum)
					}
				}
			}
		}
	}
}

// TestExplainNames checks the names of the terms where they are not all products and C in K order.
func TestExplainNames(t *testing.T) {
	for _, tc := range []struct {
		model, operands, scale string
		want                   []string // for each step
	}{
		{"hopper-mma", "e4m3", "-", []string{
			"k 0, k 1, k 4, k 5, k 8, k 9, k 12, k 13, k 16, k 17, k 20, k 21, k 24, k 25, k 28, k 29, sum",
			"k 2, k 3, k 6, k 7, k 10, k 11, k 14, k 15, k 18, k 19, k 22, k 23, k 26, k 27, k 30, k 31, sum", "sum, C"}},
		{"cdna3-mfma", "e4m3fnuz", "-", []string{
			"k 0, k 2, k 4, k 6, k 8, k 10, k 12, k 14", "k 1, k 3, k 5, k 7, k 9, k 11, k 13, k 15", "even, odd", "sum, C"}},
		{"blackwell-mxf4", "e2m1", "ue8m0", []string{"k 0 to 15, k 16 to 31, k 32 to 47, k 48 to 63, C"}},
		{"cdna2-mfma", "f32", "-", []string{"k 0, C", "k 1, C", "k 2, C", "k 3, C"}},
	} {
		u := unit(t, tc.model, tc.operands, "f32", tc.scale)
		ones := repeated(u.A, u.K, 1)
		scales := bytes.Repeat([]byte{127}, u.Scales(u.K))
		_, steps := u.Explain(ones, ones, 0, scales, scales)
		var got []string
		for _, s := range steps {
			var names []string
			for _, term := range s.Terms {
				names = append(names, term.Name)
			}
			got = append(got, strings.Join(names, ", "))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: got terms %q, want %q", tc.model, tc.operands, got, tc.want)
		}
	}
}

// TestExplainZeros checks the steps of groups whose products, or those of odd index, are zero: they
// have no exponent, and no step.
func TestExplainZeros(t *testing.T) {
	for _, tc := range []struct {
		operands, a string // codes of a
		want        string
	}{
		{"e4m3fnuz", "1", "k 0 to 15: products of even k; k 0 to 15: both sums; k 0 to 15: sum of products, and C cut to 24 bits below E"},
		{"e4m3fnuz", "01", "k 0 to 15: products of odd k; k 0 to 15: both sums; k 0 to 15: sum of products, and C cut to 24 bits below E"},
		{"e4m3fnuz", "0", "k 0 to 15: sum of products, and C cut to 24 bits below E"},
		{"bf16", "0", "k 0 to 7: sum of products, and C cut to 24 bits below E; k 8 to 15: sum of products, and C cut to 24 bits below E"},
	} {
		u := unit(t, "cdna3-mfma", tc.operands, "f32", "-")
		a := make([]uint64, u.K)
		for i, c := range tc.a {
			a[i] = repeated(u.A, 1, float64(c-'0'))[0]
		}
		_, steps := u.Explain(a, repeated(u.B, u.K, 1), f32(8), nil, nil)
		var titles []string
		for _, s := range steps {
			titles = append(titles, s.Title)
			for _, term := range s.Terms {
				if term.Exponent < -200 {
					t.Errorf("%s × %s: %s: %s has exponent %d", tc.operands, tc.a, s.Title, term.Name, term.Exponent)
				}
			}
		}
		if got := strings.Join(titles, "; "); got != tc.want {
			t.Errorf("%s × %s: got steps %s, want %s", tc.operands, tc.a, got, tc.want)
		}
	}
}

// TestUnits checks that the table has every model of the list, that names of instructions have no
// placeholders, and that K is a multiple of groups and blocks.
func TestUnits(t *testing.T) {
	const want = "volta-mma turing-mma ampere-mma ada-mma hopper-mma blackwell-mma rtxblackwell-mma hopper-wgmma " +
		"blackwell-f16 blackwell-tf32 blackwell-f8f6f4 blackwell-mxf8f6f4 blackwell-mxf4 blackwell-mxf4nvf4 " +
		"cdna1-mfma cdna2-mfma cdna2-mfma-1k cdna3-mfma cdna4-mfma-scale"
	var names []string
	for _, m := range mma.Models() {
		names = append(names, m.Name)
		seen := map[string]bool{}
		for _, usual := range m.Units() {
			types := fmt.Sprint(usual.A, usual.B, usual.Scale != nil && usual.Scale.Name == "ue8m0", usual.Out)
			if ks := usual.Ks(); seen[types] || len(slices.Compact(slices.Sorted(slices.Values(ks)))) != len(ks) || ks[0] != usual.K {
				t.Errorf("%s %s×%s to %s: got K of %v, and %d first, want each unit and each K once", m, usual.A, usual.B, usual.Out, ks, usual.K)
			}
			seen[types] = true
			for _, k := range usual.Ks() {
				u, err := m.Unit(mma.Options{A: usual.A, B: usual.B, Scale: usual.Scale, Out: usual.Out, K: k})
				if err != nil {
					t.Fatal(err)
				}
				if u.K%u.Group != 0 || u.Block > 0 && u.K%u.Block != 0 {
					t.Errorf("%s %s: got K = %d, want a multiple of the group %d and the block %d", m, u.A, u.K, u.Group, u.Block)
				}
				instructions := u.Instructions()
				if len(instructions) == 0 || strings.ContainsAny(strings.Join(instructions, ""), "{}") {
					t.Errorf("%s %s K = %d: got instructions %q", m, u.A, k, instructions)
				}
				if u.Rule() == "" || m.Device == "" || m.Evidence == "" {
					t.Errorf("%s has no description", m)
				}
			}
		}
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got models %s, want %s", got, want)
	}
	for _, m := range mma.Models() {
		if unvalidated := strings.HasPrefix(m.Evidence, "unvalidated"); unvalidated != (m.Name == "cdna4-mfma-scale") {
			t.Errorf("%s: got evidence %q, want that of CDNA4 alone to be unvalidated", m, m.Evidence)
		}
	}
	for _, tc := range []struct {
		model, operands string
		k               int
		want            string
	}{
		{"hopper-wgmma", "e5m2×e4m3", 0, "wgmma.mma_async.sync.aligned.m64nNk32.f32.e5m2.e4m3"},
		{"ampere-mma", "tf32", 4, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"},
		{"cdna3-mfma", "e4m3fnuz×e5m2fnuz", 32, "v_mfma_f32_16x16x32_fp8_bf8"},
		{"cdna2-mfma-1k", "bf16", 8, "v_mfma_f32_32x32x8bf16_1k"},
		{"cdna4-mfma-scale", "e2m1", 128, "v_mfma_scale_f32_16x16x128_f8f6f4"},
		{"blackwell-mxf4nvf4", "e2m1", 0, "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 " +
			"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"},
	} {
		usual := unit(t, tc.model, tc.operands, "f32", "-")
		u, err := usual.Model.Unit(mma.Options{A: usual.A, B: usual.B, K: tc.k})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(u.Instructions(), " "); got != tc.want {
			t.Errorf("%s %s is %s, want %s", tc.model, tc.operands, got, tc.want)
		}
	}
}

// TestErrors: unsupported combinations are errors that say what to use.
func TestErrors(t *testing.T) {
	model := func(name string) *mma.Model {
		m, err := mma.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, tc := range []struct {
		model, a, b, out, scale string
		k                       int
		want                    string
	}{
		{"hopper-wgmma", "", "", "", "", 0, "unit of hopper-wgmma: Options.A is nil: use f16×f16; bf16×bf16; tf32×tf32; any two of e4m3, e5m2"},
		{"hopper-wgmma", "e4m3", "f16", "", "", 0, "hopper-wgmma: unsupported operands e4m3×f16: use f16×f16; bf16×bf16; tf32×tf32; any two " +
			"of e4m3, e5m2"},
		{"hopper-wgmma", "bf16", "", "f16", "", 0, "hopper-wgmma: unsupported result f16 of bf16×bf16: use f32"},
		{"hopper-wgmma", "e4m3", "", "", "ue8m0", 0, "hopper-wgmma: got scales of ue8m0, want none: these operands have no block scales"},
		{"blackwell-mxf4", "e2m1", "", "", "ue4m3", 0, "blackwell-mxf4: unsupported scales ue4m3: use ue8m0"},
		{"ampere-mma", "f16", "", "", "", 4, "ampere-mma: no instruction for f16×f16 has K = 4: use 16, 8"},
		{"rtxblackwell-mma", "e2m1", "", "", "", 16, "rtxblackwell-mma: no instruction for e2m1×e2m1 has K = 16: use 32"},
	} {
		o := mma.Options{K: tc.k}
		for name, field := range map[string]**mma.Type{tc.a: &o.A, tc.b: &o.B, tc.out: &o.Out, tc.scale: &o.Scale} {
			if name != "" {
				*field = lookup(t, name)
			}
		}
		if _, err := model(tc.model).Unit(o); err == nil || err.Error() != tc.want {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
	if m, err := mma.Lookup("Hopper-WGMMA"); err != nil || m.Name != "hopper-wgmma" {
		t.Errorf("Lookup of Hopper-WGMMA: got %v, %v", m, err)
	}
	if _, err := mma.Lookup("h100"); err == nil || !strings.Contains(err.Error(), `unknown model "h100": use one of volta-mma, `) {
		t.Errorf("Lookup of h100: got %v", err)
	}
	if _, err := mma.LookupType("e9m9"); err == nil || !strings.Contains(err.Error(), `unknown operand type "e9m9": use one of f64, f32, `) {
		t.Errorf("LookupType of e9m9: got %v", err)
	}
	for name, want := range map[string]string{"F16": "f16", "fp16": "f16", "float8_e4m3fn": "e4m3", "tf32": "tf32", "fp32": "f32",
		"e8m0": "ue8m0"} {
		if got, err := mma.LookupType(name); err != nil || got.Name != want || got != lookup(t, want) {
			t.Errorf("LookupType(%q): got %v, %v, want %s", name, got, err, want)
		}
	}
	u := unit(t, "blackwell-mxf4", "e2m1", "f32", "ue8m0")
	for want, lengths := range map[string][4]int{
		"got 64 codes of a and 128 of b, want the same multiple of K = 64": {64, 128, 2, 2},
		"got 32 codes of a and 32 of b, want the same multiple of K = 64":  {32, 32, 1, 1},
		"got 2 scales of a and 1 of b, want 2 each":                        {64, 64, 2, 1},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); got != "mma: "+want {
					t.Errorf("got panic %q, want %q", got, want)
				}
			}()
			u.Dot(make([]uint64, lengths[0]), make([]uint64, lengths[1]), 0, make([]byte, lengths[2]), make([]byte, lengths[3]))
		})
	}
}

// TestStatistics compares the errors of products of 4096 elements with those of an independent
// computation, for E4M3 operands with one scale per tensor.
func TestStatistics(t *testing.T) {
	const n, k = 24, 4096
	uniform, normal := newOperands(n, k, rand.New(rand.NewPCG(1, 1)).Float64), newOperands(n, k, rand.New(rand.NewPCG(2, 2)).NormFloat64)
	hopper, blackwell := unit(t, "hopper-wgmma", "e4m3", "f32", "-"), unit(t, "blackwell-f8f6f4", "e4m3", "f32", "-")
	for _, tc := range []struct {
		name                   string
		unit                   *mma.Unit
		promote                int
		maximum, signed, whole float64 // of the uniform operands, and the Frobenius norm of the normal ones; 0: not compared
	}{
		{"hopper", hopper, k, 7.90e-2, -7.45e-2, 1.39e-3},
		{"hopper promoted every 128", hopper, 128, 6.4e-4, 0, 1.31e-4},
		{"blackwell", blackwell, k, 1.8e-6, 0, 2.2e-7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			maximum, signed, _ := uniform.errors(tc.unit, tc.promote)
			_, _, whole := normal.errors(tc.unit, tc.promote)
			t.Logf("maximum error %.3g, mean %.3g, Frobenius %.3g", maximum, signed, whole)
			for _, figure := range [][2]float64{{maximum, tc.maximum}, {signed, tc.signed}, {whole, tc.whole}} {
				if want := figure[1]; want != 0 && math.Abs(figure[0]/want-1) > 0.2 {
					t.Errorf("got %.3g, want %.3g within 20 %%", figure[0], want)
				}
			}
		})
	}
}

// operands are two matrices of E4M3 codes, the second transposed.
type operands struct{ a, b [][]uint64 }

func newOperands(n, k int, draw func() float64) operands {
	matrix := func() [][]uint64 {
		values, amax := make([][]float64, n), 0.0
		for i := range values {
			values[i] = make([]float64, k)
			for j := range values[i] {
				values[i][j] = draw()
				amax = max(amax, math.Abs(values[i][j]))
			}
		}
		codes := make([][]uint64, n)
		for i, row := range values {
			for _, x := range row {
				codes[i] = append(codes[i], uint64(format.E4M3.Encode(float32(x*448/amax))))
			}
		}
		return codes
	}
	return operands{matrix(), matrix()}
}

// errors returns the maximum and the mean relative error of the products, and that of the matrix in
// the Frobenius norm. The sum of each promote products is added to a sum in FP32.
func (o operands) errors(u *mma.Unit, promote int) (maximum, signed, whole float64) {
	var squares, of float64
	for _, a := range o.a {
		for _, b := range o.b {
			var exact float64
			for i := range a {
				exact += u.A.Value(a[i]) * u.B.Value(b[i])
			}
			var got float32
			for i := 0; i < len(a); i += promote {
				got += float32(u.Out.Value(u.Dot(a[i:i+promote], b[i:i+promote], 0, nil, nil)))
			}
			e := float64(got) - exact
			maximum = max(maximum, math.Abs(e/exact))
			signed += e / exact / float64(len(o.a)*len(o.b))
			squares += e * e
			of += exact * exact
		}
	}
	return maximum, signed, math.Sqrt(squares / of)
}
