package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestVectorOrder compares float32 vector kernels bit for bit with portable Go that adds in
// their order: the products of a block, or of a step that is shorter, in lanes, each times its scale, then the lanes.
func TestVectorOrder(t *testing.T) {
	const n = 7
	for _, k := range kernels {
		v := k.vector
		if v == nil || v.single == nil || k.panel != panelF32 || v.scale == nil || !cpu.Has(k.needs) {
			continue
		}
		ran := 0
		for i, f := range formats {
			width := []int{1024, 640}[i%2] // whole groups, or a partial one
			r := rand.New(rand.NewPCG(uint64(i), 21))
			b := operand(t, r, f, quant.Rowwise, n, width)
			for j := range b.Codes {
				b.Codes[j] = byte(r.Uint32())
				if f.Element.StoredBits() == 8 && !f.Element.Integer {
					b.Codes[j] &= 0xbb // no NaN or Inf
				}
			}
			for j := range b.Scales {
				b.Scales[j] = byte(f.Scale.Encode([]float32{0.5, 1, 2, 4}[r.IntN(4)])) + byte(r.IntN(3))
			}
			b.Global = 1
			for _, m := range []int{1, 2, 3, 5} {
				a := operand(t, r, quant.BF16, quant.Rowwise, m, width)
				if _, why := k.plan(a, b, rowMajor, Options{}); why != "" || f.Scale != v.scale || f.Block.Rows != 1 {
					continue
				}
				ran++
				c := tensor.New(m, n)
				if err := Mul(c, a, b, Options{Kernel: k.Name, Threads: 1}); err != nil {
					t.Fatal(err)
				}
				for row := range m {
					for l := range n {
						if got, want := c.At(row, l), vectorInOrder(v, k.needs, a, b, row, l); math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("kernel=%s format=%s m=%d at (%d,%d): got %g (%x), want %g (%x)", k.Name, f, m, row, l, got, math.Float32bits(got), want,
								math.Float32bits(want))
						}
					}
				}
			}
		}
		if ran == 0 {
			t.Errorf("kernel=%s supports no format", k.Name)
		}
	}
}

// vectorInOrder returns the product of row of a and row l of b, of one call's length.
func vectorInOrder(v *vectorKernel, needs cpu.Set, a, b *quant.Tensor, row, l int) float32 {
	e, width := b.Format.Element, a.StoredCols()
	values, scales := make([]float32, width), make([]float32, width)
	codes := make([]byte, width)
	e.Split(codes, b.Codes[l*b.RowBytes():(l+1)*b.RowBytes()])
	for i, code := range codes {
		values[i] = e.Decode(uint32(code)) / vectorUnit(e)
		scales[i] = b.Scale(l, i) * vectorUnit(e)
	}
	xs := make([]float32, width)
	s := side{t: a}
	s.elements(xs, row, 0)
	arranged := func(values []float32) []uint32 {
		out := make([]uint32, width)
		v.arrangeF32(out, values)
		return out
	}
	x, w, scale := arranged(xs), arranged(values), arranged(scales)
	vectors := min(v.block, v.step) / v.lanes // whose products are added before they are scaled
	if v.bits == 4 {
		vectors = 8
		if v.block == 16 && v.lanes < 16 {
			vectors = 4
		}
	}
	at := func(words []uint32, vector, lane int) float32 {
		return math.Float32frombits(words[vector*v.lanes+lane])
	}
	sums := make([]float32, v.lanes)
	for lane := range sums {
		for c := 0; c < width/v.lanes; c += vectors {
			dot := at(x, c, lane) * at(w, c, lane)
			for i := c + 1; i < c+vectors; i++ {
				dot = fma(float64(at(x, i, lane))*float64(at(w, i, lane)), dot)
			}
			sums[lane] = fma(float64(at(scale, c, lane))*float64(dot), sums[lane])
		}
	}
	if needs == cpu.ARMASIMD { // adds pairs
		for len(sums) > 1 {
			for i := range len(sums) / 2 {
				sums[i] = sums[2*i] + sums[2*i+1]
			}
			sums = sums[:len(sums)/2]
		}
		return sums[0]
	}
	for n := len(sums) / 2; n > 0; n /= 2 { // adds halves
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return sums[0]
}
