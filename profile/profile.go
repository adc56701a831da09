// Package profile names the behavior of other libraries as quantizer values:
// the same block through two profiles shows why two files differ.
//
// A profile is data. Where a library does not define a block format, asking for
// it is an error and not a guess. Deliberate differences:
//
//   - Transformer Engine's recipe for 1×128 and 128×128 blocks takes powers of two
//     as scales by default; here they are plain FP32 unless asked for
//     (quant.Quantizer.PowerOfTwo). Where max/amax overflows it takes the largest
//     value of the source's dtype; here that of float32.
//   - OCP's specification leaves blocks with a NaN or an Inf open; here all of such
//     a block becomes NaN.
//   - torchao's RCEIL on a CPU takes ceil(log2 x) in float32, which is one too small
//     just above some powers of two; here it is exact, as on a GPU. torchao-rceil
//     divides by 1 under a scale of 2^-127, as torchao does, so that all elements
//     become zeros.
//   - torchao after 0.18 treats an Inf as a NaN; the profile is that of 0.18.
//   - microxcaling's Python and ggml take floor(log2 x) in float32, which is one too
//     large just below most powers of two; here the exponent bits are read, as in
//     microxcaling's C++. Its Python also rounds x+1/2 to float32, makes 0 of -0, and
//     gives integers that are all zeros the scale 2^-126.
//   - microxcaling's Python computes with a BF16 tensor in BF16, logarithms included,
//     which raises many exponents; here it computes in float32.
//   - ggml's Q8_0 has undefined codes where 127/amax overflows or where there is a NaN
//     or an Inf; the scale is 0 where it overflows.
//   - ggml's MXFP4 scale byte wraps around for an amax below 2^-125, and is
//     undefined for Inf; here it stays 0, and is the largest.
//   - ggml's NVFP4 takes the first code of equal distance in float32 for elements of
//     2^24 times the largest scale or more; here they saturate.
//   - torchao's NVFP4 has no guard for a tensor of zeros or with a NaN or an Inf:
//     its global scale then makes all of it NaN. Here the global scale is 1 for a
//     tensor of zeros or with an Inf, and a NaN makes its block NaN.
//   - torchao's training kernels quantize NVFP4, 16×16 blocks among them, as
//     Transformer Engine does; the profile is that of its tensors for inference.
//   - torchao's training recipe for one FP8 scale per row takes powers of two, and
//     its inference divides by amax/max without a least amax; the profile is that
//     of its training casts, with plain FP32 scales.
//   - torchao's power-of-two scales take floor(log2 x) in float32; here the
//     exponent bits.
//   - ModelOpt's MXFP8 takes ceil(log2 x) in float32, which is one too small just
//     above some powers of two; here it is exact. Its MXFP4 breaks ties downward and
//     writes zeros as -0; it is left out.
//   - ModelOpt gives a tensor of zeros NVFP4 scales of NaN, and FP8 codes of NaN under
//     one scale; here the scale is 1. A NaN in its MXFP8 gives the block the smallest
//     scale, so that all else saturates; here it is ignored.
//   - ModelOpt and compressed-tensors let an Inf make an FP8 scale Inf; here the
//     scale is 1, or 1/128.
//   - Quark has an observer of MXFP8, whose export is not known; it is left out.
//   - Quark gives an amax that rounds to Inf the scale 2^127; here the rule holds there too.
//     It stores the scale 2^-127 as 2^-126, of blocks of zeros too; here it is 2^-127. What
//     it makes of a block with a NaN or an Inf is not followed.
//   - MLX wraps a scale below 2^-127 around, and NaN and Inf give it undefined scales and
//     codes; here scales stay at 2^-127, and NaN and Inf are those of Transformer Engine.
//     The profile is that of its CPU backend, which the tests run. By their source, its
//     Metal kernels round ties of FP4 to even, keep -0, and give a block of zeros the
//     scale 2^-127. Its NVFP4 has scales of blocks alone, and is left out.
//   - MLX before 0.32.4 (mlx-0.31) rounds log2(amax/max) to the dtype of the source before
//     it rounds it to an integer; here it is exact.
//   - compressed-tensors computes scales in the dtype of the checkpoint; the profile
//     is that of a BF16 checkpoint. It writes zeros with scale 1 for a block of MXFP4 or
//     MXFP8 whose amax rounds to Inf (from 1.75·2^127 on), and the global scale 0 for a
//     tensor with an Inf; here both keep their values. A NaN makes its block's scale NaN
//     or undefined; here it does not.
package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A Profile is one library's behavior: a quantizer for each of the block
// formats that it defines.
type Profile struct {
	Name    string
	Version string // of the software that interop runs to check the row; empty: none is run
	Doc     string // one line: which software, which of its defaults

	mx        *quant.Quantizer // formats with E8M0 scales
	mxfp4     *quant.Quantizer // those with E2M1 elements, where they differ
	nvfp4     *quant.Quantizer // formats with E4M3 scales
	fp8       *quant.Quantizer // formats with FP32 scales
	q8        *quant.Quantizer // INT8 elements with FP32 scales: ggml's Q8_0
	undefined []string         // formats of those kinds that it lacks
}

var profiles = []Profile{
	{
		Name:  "te",
		Doc:   "NVIDIA Transformer Engine and cuBLAS (the default); formats they lack follow the same rules",
		mx:    &quant.Quantizer{},
		nvfp4: &quant.Quantizer{},
		fp8:   &quant.Quantizer{},
	},
	{
		Name:      "ocp",
		Doc:       "OCP Microscaling Formats 1.0 §6.3: floor rule, exact; a NaN or Inf makes its block NaN",
		mx:        &quant.Quantizer{Rule: quant.Floor, ExactRatio: true, NonFinite: quant.Poison},
		undefined: []string{"mxfp8-32x32"},
	},
	{
		Name:      "torchao",
		Version:   "0.18",
		Doc:       "PyTorch's torchao, tensors: floor rule; a NaN makes the scale of its block NaN",
		mx:        &quant.Quantizer{Rule: quant.Floor, NonFinite: quant.PoisonZero, SmallestDivisor: 0x1p-126, ElementNaN: format.Unchecked},
		nvfp4:     &quant.Quantizer{Arithmetic: quant.EncodeFirst64, NonFinite: quant.PoisonNaN, ElementNaN: format.Unchecked},
		fp8:       &quant.Quantizer{Arithmetic: quant.EncodeFirst64, NonFinite: quant.PoisonNaN},
		undefined: []string{"mxint8", "nvfp4-16x16"},
	},
	{
		Name:      "microxcaling",
		Doc:       "Microsoft's microxcaling: floor rule, elements round half away from zero",
		mx:        &quant.Quantizer{Rule: quant.Floor, Rounding: format.HalfAway, NonFinite: quant.Poison},
		undefined: []string{"mxfp8-32x32"},
	},
	{
		Name:      "ggml",
		Doc:       "ggml and llama.cpp: floor rule, ties toward zero, NVFP4 without a global scale",
		mx:        &quant.Quantizer{Rule: quant.Floor, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero, NegativeZero: quant.DropNegativeZero},
		nvfp4:     &quant.Quantizer{Arithmetic: quant.BlockOnly, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero, NegativeZero: quant.DropNegativeZero},
		q8:        &quant.Quantizer{Arithmetic: quant.HalfScale, Rounding: format.HalfAway},
		undefined: []string{"mxfp8", "mxfp8-e5m2", "mxfp8-32x32", "mxfp6-e3m2", "mxfp6-e2m3", "mxint8", "nvfp4-16x16"},
	},
	{
		Name:      "modelopt",
		Version:   "0.47",
		Doc:       "NVIDIA Model Optimizer: least scale that saturates nothing, decode scales computed first",
		mx:        &quant.Quantizer{ExactRatio: true},
		nvfp4:     &quant.Quantizer{Arithmetic: quant.DecodeFirst, NegativeZero: quant.DropZeroInput},
		fp8:       &quant.Quantizer{Arithmetic: quant.DecodeFirstTyped},
		undefined: []string{"mxfp4", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp8-e5m2", "mxint8", "mxfp8-32x32", "nvfp4-16x16", "fp8-vec128"},
	},
	{
		Name:      "compressed-tensors",
		Doc:       "compressed-tensors and llm-compressor on a BF16 checkpoint: even rule at FP4's mantissa width",
		Version:   "0.20.0",
		mx:        &quant.Quantizer{Rule: quant.Even, EvenMantissa: format.E2M1.Mantissa, NegativeZero: quant.DropZeroInput},
		nvfp4:     &quant.Quantizer{Arithmetic: quant.DecodeFirstBF16, NegativeZero: quant.DropZeroInput},
		fp8:       &quant.Quantizer{Arithmetic: quant.DecodeFirstBF16, NegativeZero: quant.DropZeroInput},
		undefined: []string{"mxfp6-e3m2", "mxfp6-e2m3", "mxfp8-e5m2", "mxint8", "mxfp8-32x32", "nvfp4-16x16", "fp8-vec128"},
	},
	{
		Name:      "quark",
		Doc:       "AMD Quark: even rule at the mantissa width of the elements, no -0",
		Version:   "0.13",
		mx:        &quant.Quantizer{Rule: quant.Even, NegativeZero: quant.DropNegativeZero},
		undefined: []string{"mxfp8", "mxfp8-e5m2", "mxint8", "mxfp8-32x32"},
	},
	{
		Name:      "mlx",
		Doc:       "Apple's MLX on the CPU: smallest scale that saturates nothing, ties of FP4 toward zero",
		Version:   "0.32.4",
		mx:        &quant.Quantizer{ExactRatio: true, UnitZeroScale: true},
		mxfp4:     &quant.Quantizer{ExactRatio: true, UnitZeroScale: true, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero, NegativeZero: quant.DropNegativeZero},
		undefined: []string{"mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxint8", "mxfp8-32x32"},
	},
	{
		Name:      "deepseek",
		Doc:       "DeepSeek-V3's FP8 weights: blocks of 128×128, decode scale amax/448",
		fp8:       &quant.Quantizer{Arithmetic: quant.DecodeFirst},
		undefined: []string{"fp8-tensor", "fp8-row", "fp8-vec128"},
	},
}

// variants are profiles beside those that All returns: other modes or versions of the
// same software.
var variants = []Profile{
	{
		Name:      "torchao-rceil",
		Version:   "0.18",
		Doc:       "PyTorch's torchao, RCEIL, the default of its configurations: least scale that saturates nothing",
		mx:        &quant.Quantizer{ExactRatio: true, NonFinite: quant.PoisonNaN, SmallestDivisor: 1, ElementNaN: format.Unchecked},
		undefined: []string{"mxint8"},
	},
	{
		Name:      "mlx-0.31",
		Doc:       "Apple's MLX before 0.32.4: the power of two nearest to amax/max, which may saturate",
		Version:   "0.31.2",
		mx:        &quant.Quantizer{Rule: quant.Round, UnitZeroScale: true},
		mxfp4:     &quant.Quantizer{Rule: quant.Round, UnitZeroScale: true, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero, NegativeZero: quant.DropNegativeZero},
		undefined: []string{"mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxint8", "mxfp8-32x32"},
	},
}

// Default is the profile of Transformer Engine.
func Default() Profile { return profiles[0] }

// For returns the profile of a block format where none is asked for: the default,
// or the first that defines the format.
func For(f quant.Format) Profile {
	for _, p := range profiles {
		if !f.Scaled() || p.behavior(f) != nil {
			return p
		}
	}
	return Default()
}

// All returns one profile for each library, the default first. Lookup finds variants of
// them too.
func All() []Profile { return append([]Profile(nil), profiles...) }

// Lookup finds a profile or a variant by its name. Case is ignored.
func Lookup(name string) (Profile, error) {
	var names []string
	for _, p := range slices.Concat(profiles, variants) {
		names = append(names, p.Name)
		if strings.EqualFold(p.Name, name) {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("unknown profile %q: use one of %s", name, strings.Join(names, ", "))
}

// String returns the profile's name.
func (p Profile) String() string { return p.Name }

// Quantizer returns what the library does for block format f, or an error where
// it has no such format. Formats without scales are the same everywhere.
func (p Profile) Quantizer(f quant.Format) (quant.Quantizer, error) {
	if !f.Scaled() {
		return quant.Quantizer{Format: f}, nil
	}
	behavior := p.behavior(f)
	if behavior == nil {
		return quant.Quantizer{}, fmt.Errorf("profile %s does not define %s: use one of %s", p.Name, f.Name, strings.Join(having(f), ", "))
	}
	q := *behavior
	q.Format = f
	return q, nil
}

// behavior returns the row's quantizer for f, without its format; nil where the
// library does not define f.
func (p Profile) behavior(f quant.Format) *quant.Quantizer {
	if slices.Contains(p.undefined, f.Name) {
		return nil
	}
	switch {
	case f.Scale == format.E8M0 && f.Element == format.E2M1 && p.mxfp4 != nil:
		return p.mxfp4
	case f.Scale == format.E8M0:
		return p.mx
	case f.Scale == format.E4M3:
		return p.nvfp4
	case f.Element == format.INT8:
		return p.q8
	}
	return p.fp8
}

// having returns the names of the profiles that define f.
func having(f quant.Format) []string {
	var names []string
	for _, p := range profiles {
		if p.behavior(f) != nil {
			names = append(names, p.Name)
		}
	}
	return names
}
