package recipe

import "github.com/microscale-go/microscale/quant"

// fp8TensorE5M2 is fp8-tensor for gradients: HYBRID trades their precision for range.
var fp8TensorE5M2 = withElement(quant.FP8Tensor, quant.MXFP8E5M2.Element)

// delayed is Transformer Engine's DelayedScaling.
var delayed = Recipe{
	Name:        "delayed",
	Doc:         "one FP32 scale per tensor, from the amaxes of earlier steps; E4M3, gradients E5M2 (HYBRID)",
	Input:       plain(quant.FP8Tensor),
	Weight:      plain(quant.FP8Tensor),
	Grad:        plain(fp8TensorE5M2),
	Activations: quant.BF16,
	Delayed:     Delayed{AmaxHistoryLen: 1024, AmaxComputeAlgorithm: Max},
}
