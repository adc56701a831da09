package calibration_test

import (
	"fmt"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A weight whose second input is ten times the first is quantized so that its output is right, not its
// elements.
func Example() {
	h := []float32{1, 9.9, 100} // the upper triangle of H
	f, err := calibration.NewFactor(h, 2)
	if err != nil {
		panic(err)
	}
	w := tensor.New(1, 2)
	copy(w.Data, []float32{5, 0.7})
	q := quant.Quantizer{Format: quant.MXFP4}
	nearest, err := q.Rowwise(w, quant.With{})
	if err != nil {
		panic(err)
	}
	solved, err := calibration.GPTQ(q, w, quant.With{}, f)
	if err != nil {
		panic(err)
	}
	fmt.Println("nearest", nearest.Dequantize(1).Data)
	fmt.Println("GPTQ   ", solved.Dequantize(1).Data)
	// Output:
	// nearest [4 0.5]
	// GPTQ    [6 0.5]
}
