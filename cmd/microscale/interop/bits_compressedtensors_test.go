package interop

import (
	"slices"

	"github.com/microscale-go/microscale/quant"
)

// compressedTensorsBits are the quantizers of compressed-tensors for BF16 weights. It computes
// scales in that precision.
var compressedTensorsBits = library{
	name:        "compressed-tensors",
	version:     "0.20.0",
	profile:     "compressed-tensors",
	script:      "bits_compressedtensors.py",
	interpreter: bitsTorch("compressed-tensors==0.20.0"),
	rows: []bitsRow{
		{format: quant.MXFP8, sources: "bf16", known: []difference{special, amaxToInf, belowBF16}},
		{format: quant.MXFP4, sources: "bf16", known: []difference{special, amaxToInf, belowBF16}},
		{format: quant.NVFP4, sources: "bf16", known: []difference{
			{"a tensor with a NaN has global scale 1, one with an Inf 0", func(b block) bool { return b.tensorSpecial }},
		}},
		{format: quant.FP8Tensor, sources: "bf16", known: []difference{special}},
		{format: quant.FP8Row, sources: "bf16", known: []difference{special}},
		{format: quant.FP8Block, sources: "bf16", known: []difference{special}},
		{format: ints("int4-g32"), sources: "bf16", known: []difference{special}},
		{format: ints("int4-g64"), sources: "bf16", known: []difference{special}},
		// not int4-g128 and int8-g128: blocks have 64 elements here, and the library has no partial groups
		{format: ints("int8-row"), sources: "bf16", known: []difference{special}},
	},
}

// ints returns a block format of integers, which has no variable.
func ints(name string) quant.Format {
	f, err := quant.Lookup(name)
	if err != nil {
		panic(err)
	}
	return f
}

var special = difference{"the scale of a block with a NaN or an Inf is NaN or undefined", func(b block) bool { return b.nan || b.inf }}

var amaxToInf = difference{"an amax that rounds to Inf: scale 1, and every code 0", func(b block) bool { return b.amax >= 1.75*0x1p127 }}

// belowBF16: elements are divided by their scale in BF16, and those that become zero lose their
// sign. With the amaxes in this test, they are at most 2^-133.
var belowBF16 = difference{"an element over its scale is below the numbers of BF16", func(b block) bool {
	const smallest = 0x1p-133
	return b.amax >= 1.75*4 && slices.ContainsFunc(b.elements, func(x float32) bool { return x == -smallest })
}}
