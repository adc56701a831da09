package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestVectorTiles multiplies more rows of A than a vector kernel takes at once: its bits are those of fewer rows, and MulBF16, which
// computes C in tiles, rounds them.
func TestVectorTiles(t *testing.T) {
	const m, n, long, short = 300, 18, 1 << 16, 64
	ran := false
	r := rand.New(rand.NewPCG(15, 16))
	for i, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXINT8} {
		if i%slow.Stride(1, 3) > 0 {
			continue
		}
		for _, k := range []int{short, long} {
			rows := m
			if k == long {
				rows = 100
			}
			a, b := operand(t, r, f, quant.Rowwise, rows, k), operand(t, r, f, quant.Rowwise, n, k)
			for _, kernel := range ordered {
				if kernel.vector == nil || !kernel.vector.integers || kernel.rows.most < m || !cpu.Has(kernel.needs) {
					continue
				}
				p, why := kernel.plan(a, b, rowMajor, Options{})
				if why != "" {
					continue
				}
				ran = true
				t.Run(fmt.Sprintf("format=%s/k=%d/kernel=%s", f, k, kernel.Name), func(t *testing.T) {
					if tile := kernel.vector.tileRows(k); k == long && tile >= rows {
						t.Fatalf("%d rows are one tile: take more than %d", rows, tile)
					}
					compareRows(t, &p, a, b, rows*2/3, Options{Kernel: kernel.Name})
				})
			}
		}
	}
	if !ran && cpu.Has(cpu.AVX2.Set()) {
		t.Errorf("no kernel multiplies %d rows as integers", m)
	}
}

// compareRows compares the products with all rows of a with those of the rows from one on, and with MulBF16.
func compareRows(t *testing.T, p *plan, a, b *quant.Tensor, from int, o Options) {
	all, last := tensor.New(p.m, p.n), tensor.New(p.m-from, p.n)
	if err := Mul(all, a, b, o); err != nil {
		t.Fatal(err)
	}
	if err := Mul(last, a.ViewRows(from, p.m), b, o); err != nil {
		t.Fatal(err)
	}
	if !sameBits(all.View(from, p.m, 0, p.n).Clone().Data, last.Data) {
		t.Errorf("rows from %d on differ from those of all rows", from)
	}
	want, err := quant.Quantizer{Format: quant.BF16}.Rowwise(all, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	got := mustTensor(t, quant.BF16, p.m, p.n)
	if err := MulBF16(got, a, b, o); err != nil {
		t.Fatal(err)
	}
	if string(got.Codes) != string(want.Codes) {
		t.Error("MulBF16 differs from Mul, rounded")
	}
}
