package recipe

import "github.com/microscale-go/microscale/quant"

// mxfp8 is Transformer Engine's MXFP8BlockScaling. Under Megatron-LM's --fp8-format hybrid,
// gradients are E5M2; the default here is E4M3.
var mxfp8 = Recipe{
	Name:        "mxfp8",
	Doc:         "MXFP8 E4M3: an E8M0 scale for 32 elements, both directions quantized separately",
	Input:       plain(quant.MXFP8),
	Weight:      plain(quant.MXFP8),
	Grad:        plain(quant.MXFP8),
	Activations: quant.BF16,
}
