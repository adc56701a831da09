package gemm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// checkNaNScale checks that a product returns an error if and only if a scale is NaN.
func checkNaNScale(t *testing.T, a, b *quant.Tensor, err error) {
	t.Helper()
	want := false
	for _, x := range []*quant.Tensor{a, b} {
		for l := range x.StoredRows() {
			want = want || hasNaNScale(x, l)
		}
	}
	var nan *NaNScale
	if got := errors.As(err, &nan); got != want || err != nil && !got {
		t.Fatalf("got error %v, want an error: %v", err, want)
	}
}

// hasNaNScale reports whether a scale of row l is NaN.
func hasNaNScale(x *quant.Tensor, l int) bool {
	_, cols := x.ScaleShape()
	scales := make([]float32, cols)
	x.RowScales(scales, l)
	return slices.ContainsFunc(scales, func(s float32) bool { return s != s })
}

// setNaN sets the last scale of row l to NaN.
func setNaN(x *quant.Tensor, l int) {
	s := side{t: x}
	i := s.scaleIndex(l, x.StoredCols()-1)
	if x.Scales32 != nil {
		x.Scales32[i] = float32(math.NaN())
	} else {
		x.Scales[i] = byte(x.Format.Scale.Encode(float32(math.NaN())))
	}
}

// TestNaNScale checks that a NaN scale of either operand gives an error that names it, with
// every kernel and entry point, and that the product is complete.
func TestNaNScale(t *testing.T) {
	const n, k = 80, 320
	r := rand.New(rand.NewPCG(4, 8))
	ran := map[string]bool{}
	for i, f := range quant.Formats() {
		if i%slow.Stride(1, 6) > 0 {
			continue
		}
		for _, g := range []quant.Format{f, quant.BF16, quant.MXINT8} {
			for _, m := range []int{3, 40} {
				for _, name := range []string{"a", "b"} {
					a, b := operand(t, r, g, quant.Rowwise, m, k), operand(t, r, f, quant.Columnwise, n, k)
					bad := map[string]*quant.Tensor{"a": a, "b": b}[name]
					if !bad.Format.Scaled() {
						continue
					}
					clear(bad.Codes) // a NaN scale times zeros is NaN
					setNaN(bad, bad.StoredRows()-1)
					row := 0
					for !hasNaNScale(bad, row) {
						row++
					}
					_, blocks := bad.ScaleShape()
					want := []string{
						fmt.Sprintf("row %d: the scale of block %d (elements ", row, blocks-1),
						fmt.Sprintf(" to 319) of %s is NaN: a is rowwise %s %d×%d, b is columnwise %s %d×%d", name, g, m, k, f, k, n),
					}
					check := func(how string, c tensor.Dense, err error) {
						t.Helper()
						for _, part := range want {
							if err == nil || !strings.Contains(err.Error(), part) {
								t.Errorf("%s: got error %v, want one with %q", how, err, part)
							}
						}
						for i := range c.Rows {
							for j, x := range c.Row(i) {
								if nan := hasNaNScale(a, i) || hasNaNScale(b, j); nan != (x != x) {
									t.Fatalf("%s of m=%d a=%s b=%s: %g at (%d,%d)", how, m, g, f, x, i, j)
								}
							}
						}
					}
					for _, kernel := range Kernels() {
						o := Options{Kernel: kernel.Name}
						if _, err := Choose(a, b, o); err == nil {
							ran[kernel.Name] = true
							c := tensor.New(m, n)
							check(kernel.Name, c, Mul(c, a, b, o))
						}
					}
					o := Options{Bias: make([]float32, n), Accumulate: true, Alpha: -2, Threads: 2}
					packed, err := Pack(b, g, o)
					if err != nil {
						t.Fatal(err)
					}
					c := tensor.New(m, n)
					check("Packed.Mul", c, packed.Mul(c, a, o))
					for how, mul := range map[string]func(*quant.Tensor) error{
						"MulBF16":        func(c *quant.Tensor) error { return MulBF16(c, a, b, o) },
						"Packed.MulBF16": func(c *quant.Tensor) error { return packed.MulBF16(c, a, o) },
					} {
						c, err := quant.NewTensor(quant.BF16, m, n)
						if err != nil {
							t.Fatal(err)
						}
						err = mul(c)
						check(how, c.Dequantize(1), err)
					}
				}
			}
		}
	}
	t.Logf("kernels that multiplied by a NaN scale: %v", slices.Sorted(maps.Keys(ran)))
}

// TestNaNGlobal checks the error for a NaN global scale.
func TestNaNGlobal(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		r := rand.New(rand.NewPCG(5, 8))
		a, b := operand(t, r, quant.BF16, quant.Rowwise, 3, 64), operand(t, r, quant.NVFP4, quant.Rowwise, 5, 64)
		b.Global = float32(math.NaN())
		err := Mul(tensor.New(3, 5), a, b, Options{})
		const want = "the global scale of b is NaN: a is rowwise bf16 3×64, b is rowwise nvfp4 5×64"
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	})
}

// TestNoNaNScale checks that other NaN values, NaN scales of empty products, and infinite
// scales are not errors.
func TestNoNaNScale(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 8))
	nan := float32(math.NaN())
	start := tensor.New(3, 5)
	for i := range start.Data {
		start.Data[i] = nan
	}
	for _, tc := range []struct {
		name   string
		m, k   int
		change func(a *quant.Tensor)
		o      Options
	}{
		{"elements", 3, 64, func(a *quant.Tensor) { a.Codes[1] = 0x7f }, Options{}},
		{"c", 3, 64, func(*quant.Tensor) {}, Options{Accumulate: true}},
		{"bias", 3, 64, func(*quant.Tensor) {}, Options{Bias: start.Row(0)}},
		{"alpha", 3, 64, func(*quant.Tensor) {}, Options{Alpha: nan}},
		{"infinite scale", 3, 64, func(a *quant.Tensor) { a.Scales32[1] = float32(math.Inf(1)) }, Options{}},
		{"no products", 0, 64, func(*quant.Tensor) {}, Options{}},
		{"no depth", 3, 0, func(*quant.Tensor) {}, Options{}},
	} {
		a, b := operand(t, r, quant.FP8Row, quant.Rowwise, tc.m, tc.k), operand(t, r, quant.NVFP4, quant.Rowwise, 5, tc.k)
		tc.change(a)
		if tc.m*tc.k == 0 {
			b.Global = nan
		}
		if err := Mul(start.View(0, tc.m, 0, 5).Clone(), a, b, tc.o); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
