package recipe

import "github.com/microscale-go/microscale/quant"

// tensorwise is Transformer Engine's Float8CurrentScaling, and Megatron-LM's tensorwise.
var tensorwise = Recipe{
	Name:        "tensorwise",
	Doc:         "one FP32 scale per tensor, from the tensor itself (current scaling); E4M3, gradients E5M2 (HYBRID)",
	Input:       plain(quant.FP8Tensor),
	Weight:      plain(quant.FP8Tensor),
	Grad:        plain(fp8TensorE5M2),
	Activations: quant.BF16,
}
