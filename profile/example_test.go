package profile_test

import (
	"fmt"

	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Quantize the same block with every profile that defines MXFP4.
func Example() {
	x := tensor.Of(1, 4, []float32{7, 2.5, -0.5, 1.25})
	for _, p := range profile.All() {
		q, err := p.Quantizer(quant.MXFP4)
		if err != nil {
			fmt.Println(err)
			continue
		}
		t, err := q.Rowwise(x, quant.With{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%-18s scale %v, values %v\n", p, t.Scale(0, 0), t.Dequantize(1).Data)
	}
	// Output:
	// te                 scale 2, values [8 2 -0 1]
	// ocp                scale 1, values [6 2 -0.5 1]
	// torchao            scale 1, values [6 2 -0.5 1]
	// microxcaling       scale 1, values [6 3 -0.5 1.5]
	// ggml               scale 1, values [6 2 -0.5 1]
	// profile modelopt does not define mxfp4: use one of te, ocp, torchao, microxcaling, ggml, compressed-tensors, quark, mlx
	// compressed-tensors scale 2, values [8 2 -0 1]
	// quark              scale 2, values [8 2 0 1]
	// mlx                scale 2, values [6 2 0 1]
	// profile deepseek does not define mxfp4: use one of te, ocp, torchao, microxcaling, ggml, compressed-tensors, quark, mlx
}
