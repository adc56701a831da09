package recipe

import "github.com/microscale-go/microscale/quant"

// blockwise is Transformer Engine's Float8BlockScaling, with its default of power-of-two
// scales.
var blockwise = Recipe{
	Name:        "blockwise",
	Doc:         "FP8 E4M3 with power-of-two scales for 1×128 of inputs and gradients, 128×128 of weights",
	Input:       both(quant.Quantizer{Format: quant.FP8Vec128, PowerOfTwo: true}),
	Weight:      both(quant.Quantizer{Format: quant.FP8Block, PowerOfTwo: true}),
	Grad:        both(quant.Quantizer{Format: quant.FP8Vec128, PowerOfTwo: true}),
	Activations: quant.BF16,
}
