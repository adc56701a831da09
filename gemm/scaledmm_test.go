package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// scaled returns a tensor as an operand of ScaledMM.
func scaled(t *quant.Tensor, s scaling, swizzled bool) Scaled {
	x := Scaled{Rows: t.StoredRows(), K: t.StoredCols(), Element: t.Format.Element, Codes: t.Codes, Block: scalings[s].like.Block,
		Scales: t.Scales, Scales32: t.Scales32, Swizzled: swizzled}
	if n, _ := x.Element.StoredBytes(x.K); n != t.RowBytes() {
		x.Codes = nil
		for l := range x.Rows {
			x.Codes = append(x.Codes, t.Codes[l*t.RowBytes():][:n]...)
		}
	}
	rows, cols := t.ScaleShape()
	switch {
	case s == blockWise1x128:
		x.Scales32 = nil
		for j := range cols {
			for i := range rows {
				x.Scales32 = append(x.Scales32, t.Scales32[i*cols+j])
			}
		}
	case s == blockWise128x128:
		x.Scales32 = nil
		for i := range rows {
			x.Scales32 = append(x.Scales32, t.Scales32[i*cols:(i+1)*cols]...)
			for len(x.Scales32)%4 != 0 {
				x.Scales32 = append(x.Scales32, -1) // never read
			}
		}
	case swizzled:
		x.Scales = make([]byte, layout.Swizzled.Size(rows, cols))
		layout.Reorder(x.Scales, layout.Swizzled, t.Scales, layout.RowMajor, rows, cols)
	}
	if t.Format.Global {
		x.Global = &t.Global
	}
	return x
}

// TestScaledMMThreads checks that every pair of scalings gives the bits of Mul; under the race detector or an emulator, a third of
// them in short runs.
func TestScaledMMThreads(t *testing.T) {
	const m, n, k = 130, 144, 320
	cases := 0
	for _, p := range scaledPairs {
		for _, swizzled := range []bool{false, true} {
			for _, e := range p.elements {
				fa, fb := scalings[p.a].like, scalings[p.b].like
				if cases++; swizzled && fa.Scale == format.F32 || cases%slow.Stride(1, 3) > 0 {
					continue
				}
				fa.Element, fb.Element = e, p.elements[0]
				if p.a == blockWise1x32 {
					fb.Element = e
				}
				t.Run(fmt.Sprintf("a=%s/b=%s/element=%s/swizzle=%v", p.a, p.b, e, swizzled), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, 2))
					a, b := operand(t, r, fa, quant.Rowwise, m, k), operand(t, r, fb, quant.Rowwise, n, k)
					want, got := tensor.New(m, n), tensor.New(m, n)
					if err := Mul(want, a, b, Options{}); err != nil {
						t.Fatal(err)
					}
					if err := ScaledMM(got, scaled(a, p.a, swizzled), scaled(b, p.b, swizzled), Options{}); err != nil {
						t.Fatal(err)
					}
					if !sameBits(want.Data, got.Data) {
						t.Error("ScaledMM differs from Mul")
					}
					c, err := quant.NewTensor(quant.BF16, m, n)
					if err != nil {
						t.Fatal(err)
					}
					if err := ScaledMMBF16(c, scaled(a, p.a, swizzled), scaled(b, p.b, swizzled), Options{}); err != nil {
						t.Fatal(err)
					}
					if c.Dequantize(1).At(3, 4) != format.BF16.Decode(format.BF16.Encode(want.At(3, 4))) {
						t.Error("ScaledMMBF16 differs from ScaledMM rounded to BF16")
					}
					setNaN(b, 70)
					message := fmt.Sprintf("of b is NaN: a is rowwise %s %s 130×320, b is rowwise %s %s 144×320", p.a, fa.Element, p.b, fb.Element)
					for _, err := range []error{
						ScaledMM(got, scaled(a, p.a, swizzled), scaled(b, p.b, swizzled), Options{}),
						ScaledMMBF16(c, scaled(a, p.a, swizzled), scaled(b, p.b, swizzled), Options{}),
					} {
						if err == nil || !strings.HasSuffix(err.Error(), message) {
							t.Errorf("got error %v, want %q", err, message)
						}
					}
				})
			}
		}
	}
}

func TestScaledMMErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	mx := func(n, k int) Scaled {
		return scaled(operand(t, r, quant.MXFP8, quant.Rowwise, n, k), blockWise1x32, false)
	}
	change := func(s Scaled, f func(*Scaled)) Scaled {
		f(&s)
		return s
	}
	row := scaled(operand(t, r, quant.FP8Row, quant.Rowwise, 16, 64), rowWise, false)
	nv := scaled(operand(t, r, quant.NVFP4, quant.Rowwise, 16, 64), blockWise1x16, false)
	for _, tc := range []struct {
		name string
		a, b Scaled
		want string
	}{
		{"depth", mx(16, 64), mx(16, 32), "want equal second dimensions, K"},
		{"rows of b", mx(16, 64), mx(20, 64), "multiples of 16"},
		{"partial block", mx(16, 48), mx(16, 48), "want K a multiple of the block size 32"},
		{"pair", mx(16, 64), row, "scaling: got BlockWise1x32·RowWise"},
		{"elements", change(mx(16, 64), func(s *Scaled) { s.Element = format.E5M2 }), mx(16, 64), "elements: got e5m2, want one of [e4m3 e2m1]"},
		{"no element", change(row, func(s *Scaled) { s.Element = nil }), row, "elements: got"},
		{"two e5m2", change(row, func(s *Scaled) { s.Element = format.E5M2 }), change(row, func(s *Scaled) { s.Element = format.E5M2 }),
			"want e4m3 for at least one operand"},
		{"one global", nv, change(nv, func(s *Scaled) { s.Global = nil }), "want both or neither"},
		{"global", change(row, func(s *Scaled) { s.Global = nv.Global }), change(row, func(s *Scaled) { s.Global = nv.Global }),
			"does not support a global scale"},
		{"few scales", change(mx(16, 64), func(s *Scaled) { s.Scales = s.Scales[1:] }), mx(16, 64),
			"got 31 of 8 bits and 0 of FP32, want 32 of e8m0"},
		{"missing scales", change(row, func(s *Scaled) { s.Scales32 = nil }), row, "got 0 of 8 bits and 0 of FP32, want 16 of f32"},
		{"kind of scales", change(row, func(s *Scaled) { s.Scales, s.Scales32 = slices.Repeat([]byte{1}, 16), nil }), row,
			"got 16 of 8 bits and 0 of FP32"},
		{"swizzle", change(row, func(s *Scaled) { s.Swizzled = true }), row, "does not support swizzled scales"},
		{"swizzled size", change(mx(16, 64), func(s *Scaled) { s.Swizzled = true }), mx(16, 64), "want 512 of e8m0"},
		{"codes", change(mx(16, 64), func(s *Scaled) { s.Codes = s.Codes[1:] }), mx(16, 64), "got 1023 bytes"},
		{"scaling", change(row, func(s *Scaled) { s.Block.Cols = 9 }), row, "blocks: a has 1×9"},
	} {
		err := ScaledMM(tensor.New(tc.a.Rows, tc.b.Rows), tc.a, tc.b, Options{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want one with %q", tc.name, err, tc.want)
		}
	}
}
