package gemm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestBlockShapes checks block shapes other than those of the named formats: of all rows, of a
// few rows, and of lengths that differ from the kernels'. Each is multiplied by itself and by
// a format whose scales change within one iteration of the packing in assembly.
func TestBlockShapes(t *testing.T) {
	const n, k = 37, 160
	r := rand.New(rand.NewPCG(15, 16))
	short := quant.Format{Name: "short", Element: format.E4M3, Scale: format.F32, Block: quant.Shape{Rows: 1, Cols: 16}}
	for _, f := range []quant.Format{
		{Element: format.E4M3, Scale: format.E8M0, Block: quant.Shape{Rows: 0, Cols: 32}},
		{Element: format.E2M1, Scale: format.E8M0, Block: quant.Shape{Rows: 0, Cols: 32}},
		{Element: format.E2M1, Scale: format.E4M3, Block: quant.Shape{Rows: 0, Cols: 16}, Global: true},
		{Element: format.INT8, Scale: format.E8M0, Block: quant.Shape{Rows: 4, Cols: 32}},
		{Element: format.E2M1, Scale: format.E4M3, Block: quant.Shape{Rows: 2, Cols: 16}, Global: true},
		{Element: format.E5M2, Scale: format.F32, Block: quant.Shape{Rows: 3, Cols: 128}},
		{Element: format.E2M3, Scale: format.E8M0, Block: quant.Shape{Rows: 1, Cols: 64}},
	} {
		f.Name = fmt.Sprintf("%s-%s-%dx%d", f.Element, f.Scale, f.Block.Rows, f.Block.Cols)
		b := operand(t, r, f, quant.Rowwise, n, k)
		everyKernel(t, operand(t, r, f, quant.Columnwise, 3, k), b)
		everyKernel(t, operand(t, r, short, quant.Rowwise, 19, k), b)
	}
}

// TestIntegerEnds checks that products of the largest elements of either sign with the smallest and
// the largest scales of int8 kernels are within the bound: no intermediate sum overflows.
func TestIntegerEnds(t *testing.T) {
	const n, k = 5, 2 * int8KC
	operand := func(f quant.Format, code, scale byte) *quant.Tensor {
		x := mustTensor(t, f, n, k)
		f.Element.Join(x.Codes, bytes.Repeat([]byte{code}, n*k))
		for i := range x.Scales {
			x.Scales[i] = scale
		}
		return x
	}
	for _, f := range []quant.Format{quant.MXINT8, quant.MXFP6E2M3, quant.MXFP4} {
		largest := byte(f.Element.MaxCode())
		smallest := largest | 1<<(f.Element.Bits()-1)
		if f.Element.Integer { // two's complement
			smallest = 1 << (f.Element.Bits() - 1)
		}
		for _, scale := range []byte{minExponent, maxExponent} {
			for _, other := range []byte{minExponent, maxExponent} {
				everyKernel(t, operand(f, smallest, scale), operand(f, largest, other))
			}
			everyKernel(t, operand(f, smallest, scale), operand(f, smallest, scale))
		}
	}
}

// TestSmallProducts checks that products that kernels flush to zero are within the bound if
// alpha makes them large.
func TestSmallProducts(t *testing.T) {
	const n, k, alpha = 5, 64, 0x1p30
	operand := func(x float32) *quant.Tensor {
		d := tensor.New(n, k)
		for i := range d.Data {
			d.Data[i] = x
		}
		q, err := quant.Quantizer{Format: quant.BF16}.Rowwise(d, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	a, b := operand(0x1p-100), operand(0x1p-28)
	want, magnitude, err := Reference(a, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, kernel := range Kernels() {
		o := Options{Alpha: alpha, Kernel: kernel.Name}
		if _, err := Choose(a, b, o); err != nil {
			continue
		}
		c := tensor.New(n, n)
		if err := Mul(c, a, b, o); err != nil {
			t.Fatal(err)
		}
		for i, got := range c.Data {
			if !(math.Abs(float64(got)-alpha*want[i]) <= bound(k, alpha, magnitude[i])) {
				t.Fatalf("kernel=%s: got %g, want %g ± %g", kernel.Name, got, alpha*want[i], bound(k, alpha, magnitude[i]))
			}
		}
	}
}
