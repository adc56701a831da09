package gemm_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/gemm"
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
