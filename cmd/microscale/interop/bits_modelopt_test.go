package interop

import (
	"math"

	"github.com/microscale-go/microscale/quant"
)

// modeloptBits are the quantizers of Model Optimizer's export on a CPU.
var modeloptBits = library{
	name:        "modelopt",
	version:     "0.47.0 with PyTorch 2.15.0",
	profile:     "modelopt",
	script:      "bits_modelopt.py",
	interpreter: bitsTorch("nvidia-modelopt==0.47.0", "requests==2.34.2", "huggingface_hub==2.4.0"),
	rows: []bitsRow{
		{format: quant.MXFP8, sources: "f32", known: []difference{modeloptNaNBlock, log2AbovePower(448)}},
		{format: quant.MXFP8, sources: "bf16", known: []difference{modeloptNaNBlock}},
		{format: quant.NVFP4, sources: "f32 bf16", known: []difference{
			modeloptNotFinite,
			{"a tensor of zeros has the global scale 0, and NaN as its scales", func(b block) bool { return b.tensorAmax/2688 == 0 }},
		}},
		{format: quant.FP8Tensor, sources: "f32 bf16", known: []difference{modeloptNotFinite, modeloptZero}},
		{format: quant.FP8Row, sources: "f32 bf16", known: []difference{modeloptNotFinite}},
	},
}

var (
	modeloptNaNBlock  = difference{"a NaN gives its block the smallest scale, so that all others saturate", hasNaN}
	modeloptNotFinite = difference{"a NaN or an Inf is the scale, or is clamped to what float32 holds", func(b block) bool {
		return b.tensorNaN || b.tensorAmax > math.MaxFloat32
	}}
	modeloptZero = difference{"a tensor of zeros has the scale 0, and NaN as its codes", func(b block) bool { return b.tensorAmax/448 == 0 }}
)
