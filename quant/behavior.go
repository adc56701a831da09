package quant

import "github.com/microscale-go/microscale/internal/naming"

// Arithmetic says in which order and precision FP32 and E4M3 scales are
// computed. The rows agree in exact arithmetic; in floating point each gives
// other bits on some blocks. All is float32 unless said; max is the element
// format's largest value, 448 the scale format's, for which a Quantizer's TopScale
// stands in E and G.
//
//	EncodeFirst       Transformer Engine
//	  FP8    encode = max/amax, decode = 1/encode, code = x·encode
//	  NVFP4  E = 448·max/amax_tensor, scale = e4m3(amax·(E·(1/max))), code = x·(1/(scale·(1/E)))
//	EncodeFirst64     torchao
//	  FP8    the same with max/amax in float64 and amax at least 1e-12
//	  NVFP4  G = amax_tensor/(448·max), scale = e4m3(clamp(amax/max/G, 2^-6, 448)), code = x·((1/G)/scale)
//	DecodeFirst       ModelOpt
//	  FP8    decode = amax/max, code = x/decode
//	  NVFP4  G = amax_tensor/(448·max), scale = e4m3(clamp(amax/(max·G), 2^-9, 448)), 1 for a zero block, code = x/(scale·G)
//	DecodeFirstBF16   compressed-tensors on a BF16 checkpoint: as DecodeFirst, rounded to BF16 at each step
//	  FP8    decode = bf16(amax/max), code = bf16(x/decode)
//	  NVFP4  E = bf16(448·max·bf16(1/amax_tensor)), scale = e4m3(clamp(E·bf16(amax/max), 0, 448)), 1/8 for zero, code = x/(scale/E)
//	BlockOnly         ggml's NVFP4: no global scale
//	  NVFP4  scale = e4m3(amax/max) with ties up, but 448 from 248 on and at most 7·2^-9 below 2^-6, code = x/scale
//	BlockNearest      MLX's NVFP4: no global scale. Its quotients have the source's dtype, which changes no code of F16 and BF16
//	  NVFP4  scale = e4m3(amax/max), code = x/scale, zeros under a scale of zero
//	HalfScale         ggml's Q8_0, whose file has scale/64 as FP16: codes are integers there, and INT8's are those times 2^-6
//	  FP32   d = amax/127, scale = 64·fp16(d), code = x·(1/d)·2^-6
//	DecodeFirstTyped  ModelOpt's FP8: as DecodeFirst, but under one scale for the whole tensor the quotients have the source's dtype
//	  FP8    decode = amax/max, code = x/decode, of a BF16 source bf16(x/decode)
type Arithmetic uint8

const (
	EncodeFirst Arithmetic = iota
	EncodeFirst64
	DecodeFirst
	DecodeFirstBF16
	BlockOnly
	BlockNearest
	HalfScale
	DecodeFirstTyped
)

// NonFinite says what NaN and Inf do to the scale of their block.
type NonFinite uint8

const (
	Tolerate   NonFinite = iota // amax ignores NaN; Inf takes the largest scale, or what the arithmetic makes of it; NaN elements stay NaN
	Poison                      // the scale is NaN, and so is every element of the block
	PoisonNaN                   // NaN does as under Poison; Inf goes through the scale rule or the arithmetic, which give 2^128 its exponent
	PoisonZero                  // as PoisonNaN, but elements are divided by infinity under an E8M0 scale of NaN: all but NaN become zeros
)

// NegativeZero says which elements may take the code of -0.
type NegativeZero uint8

const (
	KeepNegativeZero NegativeZero = iota // -0, and every negative value that rounds to zero
	DropZeroInput                        // negative values that round to zero, but not -0 itself, nor what the scale makes -0
	DropNegativeZero                     // none
)

var (
	arithmeticNames = []string{"encode-first", "encode-first-64", "decode-first", "decode-first-bf16", "block-only", "block-nearest",
		"half-scale", "decode-first-typed"}
	nonFiniteNames    = []string{"tolerate", "poison", "poison-nan", "poison-zero"}
	negativeZeroNames = []string{"keep", "drop-input", "drop"}
)

// FixesGlobal reports whether a leaves the global scale of every tensor at 1: only blocks have
// scales.
func (a Arithmetic) FixesGlobal() bool {
	return a == BlockOnly || a == BlockNearest || a == HalfScale
}

// String returns the name, or the number of an unknown value.
func (a Arithmetic) String() string { return naming.String("Arithmetic", arithmeticNames, a) }

// MarshalText returns the name.
func (a Arithmetic) MarshalText() ([]byte, error) {
	return naming.Marshal("arithmetic", arithmeticNames, a)
}

// UnmarshalText sets a to the value of a name. Case is ignored.
func (a *Arithmetic) UnmarshalText(text []byte) error {
	return naming.Unmarshal("arithmetic", arithmeticNames, a, text)
}

// String returns the name, or the number of an unknown value.
func (n NonFinite) String() string { return naming.String("NonFinite", nonFiniteNames, n) }

// MarshalText returns the name.
func (n NonFinite) MarshalText() ([]byte, error) {
	return naming.Marshal("treatment of NaN and Inf", nonFiniteNames, n)
}

// UnmarshalText sets n to the value of a name. Case is ignored.
func (n *NonFinite) UnmarshalText(text []byte) error {
	return naming.Unmarshal("treatment of NaN and Inf", nonFiniteNames, n, text)
}

// String returns the name, or the number of an unknown value.
func (z NegativeZero) String() string { return naming.String("NegativeZero", negativeZeroNames, z) }

// MarshalText returns the name.
func (z NegativeZero) MarshalText() ([]byte, error) {
	return naming.Marshal("treatment of -0", negativeZeroNames, z)
}

// UnmarshalText sets z to the value of a name. Case is ignored.
func (z *NegativeZero) UnmarshalText(text []byte) error {
	return naming.Unmarshal("treatment of -0", negativeZeroNames, z, text)
}
