package recipe

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// nvfp4 is Transformer Engine's NVFP4BlockScaling with all options enabled. Wgrad multiplies the
// columnwise operands of Grad and Input (see the package comment).
var nvfp4 = Recipe{
	Name: "nvfp4",
	Doc:  "NVFP4: 16×16 weights, Hadamard transform for wgrad, stochastic rounding of gradients",
	Input: Operand{
		Rowwise:    quant.Quantizer{Format: quant.NVFP4},
		Columnwise: quant.Quantizer{Format: quant.NVFP4, Hadamard: true},
	},
	Weight: plain(quant.NVFP4x16),
	Grad: Operand{
		Rowwise:    quant.Quantizer{Format: quant.NVFP4, Rounding: format.Stochastic},
		Columnwise: quant.Quantizer{Format: quant.NVFP4, Rounding: format.Stochastic, Hadamard: true},
	},
	Activations: quant.BF16,
}
