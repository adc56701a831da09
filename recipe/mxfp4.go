package recipe

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

var mxfp4 = Recipe{
	Name:        "mxfp4",
	Doc:         "plain MXFP4: an E8M0 scale for 32 elements, nearest rounding",
	Input:       plain(quant.MXFP4),
	Weight:      plain(quant.MXFP4),
	Grad:        plain(quant.MXFP4),
	Activations: quant.BF16,
}

// mxfp4RHTSR adds the methods of Tseng et al., "Training LLMs with MXFP4" (2502.20586), to the
// backward products: a Hadamard transform of both operands, and stochastic rounding. They
// round both operands stochastically; this recipe rounds only gradients, as Transformer Engine
// does for NVFP4. Their factor of 3/4 prevents saturation under the floor rule; the rule of
// this recipe never saturates. Their forward product is BF16 or FP8 (high_precision =
// ["fprop"]).
var mxfp4RHTSR = Recipe{
	Name:  "mxfp4-rht-sr",
	Doc:   "MXFP4 with the Hadamard transform for dgrad and wgrad, and stochastic rounding of gradients",
	Input: Operand{mxfp4Nearest, mxfp4Hadamard},
	Weight: Operand{
		Rowwise:    mxfp4Nearest,
		Columnwise: mxfp4Hadamard,
	},
	Grad:        both(quant.Quantizer{Format: quant.MXFP4, Rounding: format.Stochastic, Hadamard: true}),
	Activations: quant.BF16,
}

var (
	mxfp4Nearest  = quant.Quantizer{Format: quant.MXFP4}
	mxfp4Hadamard = quant.Quantizer{Format: quant.MXFP4, Hadamard: true}
)
