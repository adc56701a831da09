// Package microscale is the Go toolkit for block-scaled low-precision numbers: MXFP8, MXFP6, MXFP4,
// MXINT8, NVFP4, and FP8 in every scaling.
//
// It contains no code. The packages, in the order in which a tensor passes through them:
//
//	safetensors         files of tensors; File.Floats reads one as []float32
//	hf, hf/hub          Hugging Face checkpoints, on the disk and on the hub
//	tensor              dense matrices, and 16-bit values in and out
//	format              number formats: the value of one code
//	quant               block formats, quantizers and quantized tensors
//	profile             the rules of other libraries as quantizer values
//	layout              scales in the orders of hardware
//	gemm                products of quantized tensors
//	measure             the error of one tensor against another
//	convert, verify     checkpoints of any size, in bounded memory
//	recipe, train       training under low-precision recipes
//	decoder, tokenizer  language models: weights, generation, text
//	mma                 the matrix units of GPUs, bit for bit
//
// The example quantizes a tensor and measures the error. docs/architecture.md describes all packages.
package microscale
