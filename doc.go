// Package microscale is the Go toolkit for block-scaled low-precision numbers:
// MXFP8, MXFP6, MXFP4, MXINT8, NVFP4, and FP8 in every scaling.
//
// There is no code here. A tensor takes this path through the packages:
//
//	bytes → safetensors → tensor.Dense → quant.Tensor → checkpoint → bytes
//
// format says what one code means, quant what a block of codes with a scale
// means, profile whose behavior to follow, checkpoint which client stores it how,
// convert does it to files of any size, and measure and verify say what it cost.
// The example walks the path. docs/architecture.md has the whole picture.
package microscale
