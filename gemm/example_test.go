package gemm_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Multiply activations by the weight of a linear layer: Y = X·Wᵀ + bias, both operands in MXFP8.
func Example() {
	x, w := tensor.New(2, 64), tensor.New(3, 64)
	for i := range x.Data {
		x.Data[i] = float32(i%4) / 4
	}
	for i := range w.Data {
		w.Data[i] = float32(i%8) - 4
	}
	q := quant.Quantizer{Format: quant.MXFP8}
	a, err := q.Rowwise(x, quant.With{})
	if err != nil {
		log.Fatal(err)
	}
	b, err := q.Rowwise(w, quant.With{})
	if err != nil {
		log.Fatal(err)
	}
	y := tensor.New(2, 3)
	if err := gemm.Mul(y, a, b, gemm.Options{Bias: []float32{0, 10, 100}}); err != nil {
		log.Fatal(err)
	}
	for i := range y.Rows {
		fmt.Println(y.Row(i))
	}
	// Output:
	// [8 18 108]
	// [8 18 108]
}

// The product of two matrices in MXFP8, with PyTorch's operands: codes, and E8M0 scales of 1×32 blocks.
func ExampleScaledMM() {
	operand := func(x tensor.Dense) gemm.Scaled {
		t, err := quant.Quantizer{Format: quant.MXFP8}.Rowwise(x, quant.With{})
		if err != nil {
			log.Fatal(err)
		}
		return gemm.Scaled{Rows: x.Rows, K: x.Cols, Element: t.Format.Element, Codes: t.Codes, Block: quant.Shape{Rows: 1, Cols: 32},
			Scales: t.Scales}
	}
	a, b := tensor.New(2, 64), tensor.New(16, 64)
	for i := range a.Data {
		a.Data[i] = float32(i%8) / 8
	}
	for i := range b.Data {
		b.Data[i] = float32(i / 64)
	}
	y, err := quant.NewTensor(quant.BF16, 2, 16)
	if err != nil {
		log.Fatal(err)
	}
	if err := gemm.ScaledMMBF16(y, operand(a), operand(b), gemm.Options{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y.Dequantize(1).Row(0)[:4])
	// Output: [0 28 56 84]
}

// The same in NVFP4: E4M3 scales of 1×16 blocks in the tiles that tensor cores read, and a global scale
// of each operand.
func ExampleScaledMM_nvfp4() {
	operand := func(x tensor.Dense) gemm.Scaled {
		t, scales, err := layout.QuantizeSwizzled(quant.Quantizer{Format: quant.NVFP4}, x, quant.Rowwise, quant.With{})
		if err != nil {
			log.Fatal(err)
		}
		return gemm.Scaled{Rows: x.Rows, K: x.Cols, Element: t.Format.Element, Codes: t.Codes, Block: quant.Shape{Rows: 1, Cols: 16},
			Scales: scales, Swizzled: true, Global: &t.Global}
	}
	a, b := tensor.New(2, 64), tensor.New(16, 64)
	for i := range a.Data {
		a.Data[i] = float32(i % 4)
	}
	for i := range b.Data {
		b.Data[i] = float32(i / 64 % 4)
	}
	y := tensor.New(2, 16)
	if err := gemm.ScaledMM(y, operand(a), operand(b), gemm.Options{}); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4g\n", y.Row(0)[:4])
	// Output: [0 92.57 185.1 288]
}

// A product whose terms Hopper's FP8 units add: they keep 13 fraction bits, and stop at 16384.
func ExampleOptions_accumulator() {
	x := tensor.New(1, 32768)
	for i := range x.Data {
		x.Data[i] = 1
	}
	one := float32(1) // a scale of 1
	t, err := quant.Quantizer{Format: quant.FP8Tensor}.Rowwise(x, quant.With{Inverse: &one})
	if err != nil {
		log.Fatal(err)
	}
	y := tensor.New(1, 1)
	for _, name := range []string{"fp32", "hopper-wgmma", "hopper-wgmma:128", "blackwell-f8f6f4"} {
		var accumulator mma.Accumulator
		if err := accumulator.UnmarshalText([]byte(name)); err != nil {
			log.Fatal(err)
		}
		if err := gemm.Mul(y, t, t, gemm.Options{Accumulator: accumulator}); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-16s %v\n", name, y.At(0, 0))
	}
	// Output:
	// fp32             32768
	// hopper-wgmma     16384
	// hopper-wgmma:128 32768
	// blackwell-f8f6f4 32768
}
