// Package profile defines the quantizers of other libraries as values of quant.Quantizer. Codes
// and scales are those of the library, bit for bit, except for the differences below. A block
// format that a library does not define is an error.
//
// The differences are deliberate. Most are numerical errors of a library, or inputs for which it
// defines no result. Tests in interop run the libraries and check them.
//
// # Transformer Engine
//
//   - Its recipe for 1×128 and 128×128 blocks uses power-of-two scales by default. Here they are
//     FP32 (see quant.Quantizer.PowerOfTwo).
//   - If max/amax overflows, it uses the maximum of the source's dtype, and this package that of
//     float32.
//
// # OCP
//
//   - The specification does not define blocks with a NaN or an Inf. Here the whole block is NaN.
//
// # torchao
//
//   - The profile is that of version 0.18. Later versions treat an Inf as a NaN.
//   - The profile is that of tensors for inference. Training kernels quantize NVFP4 as
//     Transformer Engine does, including 16×16 blocks.
//   - For one FP8 scale per row, the profile is that of the casts for training, with FP32 scales.
//     The training recipe uses powers of two. Inference divides by amax/max without a minimum
//     of amax.
//   - RCEIL on a CPU computes ceil(log2 x) in float32, which is too small by one just above some
//     powers of two. Here it is exact, as on a GPU.
//   - torchao-rceil divides by 1 if the scale is 2^-127, as torchao does, so that all elements
//     become zero.
//   - Power-of-two scales use floor(log2 x) in float32. Here they use the exponent bits.
//   - In NVFP4, a tensor of zeros, or with a NaN or an Inf, gets a global scale that makes all
//     elements NaN. Here the global scale is 1 for zeros and for an Inf, and a NaN affects its
//     block only.
//
// # microxcaling
//
//   - Its Python computes floor(log2 x) in float32, which is too large by one just below most
//     powers of two. Here the exponent bits are used, as in its C++.
//   - Its Python rounds x+1/2 to float32, and turns -0 into 0. Integers that are all zero get the
//     scale 2^-126.
//   - Its Python computes a BF16 tensor in BF16, including logarithms, which raises many
//     exponents. Here the arithmetic is float32.
//
// # ggml
//
//   - It computes floor(log2 x) in float32, as microxcaling does.
//   - In Q8_0, the codes are undefined if 127/amax overflows, or for a NaN or an Inf. Here the
//     scale is 0 if the quotient overflows.
//   - In MXFP4, the scale byte wraps around for an amax below 2^-125, and is undefined for an Inf.
//     Here it is 0 and the largest byte.
//   - In NVFP4, elements of at least 2^24 times the largest scale get the first code of equal
//     distance in float32. Here they saturate.
//
// # ModelOpt
//
//   - In MXFP8, it computes ceil(log2 x) in float32, which is too small by one just above some
//     powers of two. Here it is exact.
//   - In MXFP8, a NaN gives its block the smallest scale, so that all other elements saturate.
//     Here the NaN does not affect the scale.
//   - Its MXFP4 breaks ties downward and writes zeros as -0. The profile omits it.
//   - A tensor of zeros gets NVFP4 scales of NaN, or FP8 codes of NaN if it has one scale. Here
//     the scale is 1.
//   - An Inf makes an FP8 scale Inf. Here the scale is 1, or 1/128.
//
// # Quark
//
//   - It has an observer of MXFP8, but its export is unknown. The profile omits it.
//   - An amax that rounds to Inf gets the scale 2^127. Here the rule applies there too.
//   - The scale 2^-127 is stored as 2^-126, even for blocks of zeros. Here it is 2^-127.
//   - Its results for a block with a NaN or an Inf are not reproduced.
//
// # MLX
//
//   - The profile is that of its CPU backend. According to their source, its Metal kernels round
//     ties of FP4 to even, keep -0, and give a block of zeros the scale 2^-127.
//   - A scale below 2^-127 wraps around. Here the minimum is 2^-127.
//   - A NaN or an Inf gives undefined scales and codes. Here they are those of Transformer Engine.
//   - Its NVFP4 has no global scale: block scales are e4m3(amax/6).
//   - Before 0.32.4 (mlx-0.31) it rounds log2(amax/max) to the dtype of the source, and then to an
//     integer. Here the logarithm is exact.
//
// # compressed-tensors
//
//   - It computes scales in the dtype of the checkpoint. The profile is that of a BF16 checkpoint.
//   - A block of MXFP4 or MXFP8 whose amax rounds to Inf (from 1.75·2^127 on) becomes zeros with
//     scale 1, and a tensor with an Inf gets the global scale 0. Here both keep their values.
//   - An Inf makes an FP8 scale Inf. Here the scale is 1, or 1/128.
//   - A NaN makes the scale of its block NaN or undefined. Here it does not affect the scale.
package profile
