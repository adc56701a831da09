package interop

import (
	"math"

	"github.com/microscale-go/microscale/quant"
)

// torchaoBits are the tensors of torchao's mx_formats and the casts of its float8 training, on
// a CPU.
var torchaoBits = library{
	name:        "torchao",
	version:     "0.18.0 with PyTorch 2.15.0",
	profile:     "torchao",
	script:      "bits_torchao.py",
	interpreter: bitsTorch("torchao==0.18.0"),
	rows: []bitsRow{
		{format: quant.MXFP8, sources: "f32 bf16", option: "floor"},
		{format: quant.MXFP8E5M2, sources: "f32 bf16", option: "floor"},
		{format: quant.MXFP6E3M2, sources: "f32 bf16", option: "floor"},
		{format: quant.MXFP6E2M3, sources: "f32 bf16", option: "floor"},
		{format: quant.MXFP4, sources: "f32 bf16", option: "floor"},
		{format: quant.MXFP8, sources: "f32 bf16", option: "even", change: withRule(quant.Even)},
		{format: quant.MXFP4, sources: "f32 bf16", option: "even", change: withRule(quant.Even)},
		{format: quant.MXFP8, sources: "f32 bf16", option: "ceil", change: withRule(quant.Ceil)},
		{format: quant.NVFP4, sources: "f32 bf16", known: []difference{
			{"a NaN or an Inf makes the global scale NaN or Inf, and so every scale of the tensor NaN", func(b block) bool {
				return b.tensorNaN || b.tensorAmax > math.MaxFloat32
			}},
			{"a tensor of zeros has the global scale 0, and NaN as its scales", func(b block) bool { return b.tensorAmax/2688 == 0 }},
		}},
		{format: quant.FP8Tensor, sources: "f32 bf16"},
		{format: quant.FP8Row, sources: "f32 bf16"},
	},
}

// torchaoRceilBits are torchaoBits with scale rule RCEIL.
var torchaoRceilBits = library{
	name:        "torchao-rceil",
	version:     torchaoBits.version,
	profile:     "torchao-rceil",
	script:      torchaoBits.script,
	interpreter: torchaoBits.interpreter,
	rows: []bitsRow{
		{format: quant.MXFP8, sources: "f32", option: "rceil", known: []difference{log2AbovePower(448)}},
		{format: quant.MXFP8, sources: "bf16", option: "rceil"},
		{format: quant.MXFP8E5M2, sources: "f32", option: "rceil", known: []difference{log2AbovePower(57344)}},
		{format: quant.MXFP8E5M2, sources: "bf16", option: "rceil"},
		{format: quant.MXFP6E3M2, sources: "f32", option: "rceil", known: []difference{log2AbovePower(28)}},
		{format: quant.MXFP6E3M2, sources: "bf16", option: "rceil"},
		{format: quant.MXFP6E2M3, sources: "f32", option: "rceil", known: []difference{log2AbovePower(7.5)}},
		{format: quant.MXFP6E2M3, sources: "bf16", option: "rceil"},
		{format: quant.MXFP4, sources: "f32", option: "rceil", known: []difference{log2AbovePower(6)}},
		{format: quant.MXFP4, sources: "bf16", option: "rceil"},
	},
}

// log2AbovePower is the difference of libraries that compute ceil(log2(amax/max)) in float32.
func log2AbovePower(largest float32) difference {
	return difference{"ceil(log2(amax/max)) in float32 is one too small just above a power of two", func(b block) bool {
		ratio := b.amax / largest
		exact := math.Ceil(math.Log2(float64(b.amax) / float64(largest)))
		return b.amax > 0 && math.Ceil(float64(float32(math.Log2(float64(ratio))))) < exact
	}}
}

// withRule returns a function that changes the scale rule of a profile.
func withRule(rule quant.ScaleRule) func(*quant.Quantizer) {
	return func(q *quant.Quantizer) { q.Rule = rule }
}
