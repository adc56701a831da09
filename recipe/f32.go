package recipe

import "github.com/microscale-go/microscale/quant"

var f32 = Recipe{
	Name:        "f32",
	Doc:         "FP32 throughout: the reference for the others",
	Input:       plain(quant.F32),
	Weight:      plain(quant.F32),
	Grad:        plain(quant.F32),
	Activations: quant.F32,
}
