package recipe

import "github.com/microscale-go/microscale/quant"

var bf16 = Recipe{
	Name:        "bf16",
	Doc:         "BF16 operands and activations, FP32 sums: the baseline for low precision",
	Input:       plain(quant.BF16),
	Weight:      plain(quant.BF16),
	Grad:        plain(quant.BF16),
	Activations: quant.BF16,
}
