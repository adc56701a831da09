package recipe

import "github.com/microscale-go/microscale/quant"

// mxfp6 uses E2M3, which has one exponent bit less and one mantissa bit more than E3M2: blocks
// of 32 seldom need the range.
var mxfp6 = Recipe{
	Name:        "mxfp6",
	Doc:         "MXFP6 E2M3: an E8M0 scale for 32 elements, both directions quantized separately",
	Input:       plain(quant.MXFP6E2M3),
	Weight:      plain(quant.MXFP6E2M3),
	Grad:        plain(quant.MXFP6E2M3),
	Activations: quant.BF16,
}
