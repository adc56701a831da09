package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

// A Profile has the quantizers of one library, one for each block format that it defines.
type Profile struct {
	Name    string
	Version string // of the library that interop compares with; empty: none
	Doc     string // one line: the library and its main rules

	mx        *quant.Quantizer // formats with E8M0 scales
	mxfp4     *quant.Quantizer // those with E2M1 elements, if they differ
	nvfp4     *quant.Quantizer // formats with E4M3 scales
	fp8       *quant.Quantizer // formats with FP32 scales
	q8        *quant.Quantizer // INT8 elements with FP32 scales: ggml's Q8_0
	ints      *quant.Quantizer // S4 and S8 elements: integers
	undefined []string         // names of formats of these kinds that it lacks

	// OfBF16: the library computes in the dtype of the source, and the bits are its own for BF16 only.
	OfBF16 bool
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
		Name: "ggml",
		Doc:  "ggml and llama.cpp: floor rule, ties toward zero, NVFP4 without a global scale",
		mx: &quant.Quantizer{Rule: quant.Floor, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero,
			NegativeZero: quant.DropNegativeZero},
		nvfp4: &quant.Quantizer{Arithmetic: quant.BlockOnly, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero,
			NegativeZero: quant.DropNegativeZero},
		q8:        &quant.Quantizer{Arithmetic: quant.HalfScale, Rounding: format.HalfAway},
		undefined: []string{"mxfp8", "mxfp8-e5m2", "mxfp8-32x32", "mxfp6-e3m2", "mxfp6-e2m3", "mxint8", "nvfp4-16x16"},
	},
	{
		Name:      "modelopt",
		Version:   "0.47",
		Doc:       "NVIDIA Model Optimizer: smallest scale that saturates nothing, decode scales computed first",
		mx:        &quant.Quantizer{ExactRatio: true},
		nvfp4:     &quant.Quantizer{Arithmetic: quant.DecodeFirst, NegativeZero: quant.DropZeroInput},
		fp8:       &quant.Quantizer{Arithmetic: quant.DecodeFirstTyped},
		undefined: []string{"mxfp4", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp8-e5m2", "mxint8", "mxfp8-32x32", "nvfp4-16x16", "fp8-vec128"},
	},
	{
		Name:      "compressed-tensors",
		OfBF16:    true,
		Doc:       "compressed-tensors and llm-compressor on a BF16 checkpoint: MX scales by the even rule at FP4's mantissa width",
		Version:   "0.20.0",
		mx:        &quant.Quantizer{Rule: quant.Even, EvenMantissa: format.E2M1.Mantissa, NegativeZero: quant.DropZeroInput},
		nvfp4:     &quant.Quantizer{Arithmetic: quant.DecodeFirstBF16, NegativeZero: quant.DropZeroInput},
		fp8:       &quant.Quantizer{Arithmetic: quant.DecodeFirstBF16, NegativeZero: quant.DropZeroInput},
		ints:      &quant.Quantizer{Arithmetic: quant.DecodeFirstBF16},
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
		Name:    "mlx",
		Doc:     "Apple's MLX on the CPU: smallest scale that saturates nothing, ties of FP4 toward zero",
		Version: "0.32.4",
		mx:      &quant.Quantizer{ExactRatio: true, UnitZeroScale: true},
		mxfp4: &quant.Quantizer{ExactRatio: true, UnitZeroScale: true, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero,
			NegativeZero: quant.DropNegativeZero},
		nvfp4:     mlxNVFP4,
		undefined: []string{"mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxint8", "mxfp8-32x32", "nvfp4-16x16"},
	},
	{
		Name:      "deepseek",
		Doc:       "DeepSeek-V3's FP8 weights: blocks of 128×128, decode scale amax/448",
		fp8:       &quant.Quantizer{Arithmetic: quant.DecodeFirst},
		undefined: []string{"fp8-tensor", "fp8-row", "fp8-vec128"},
	},
}

// mlxNVFP4 is MLX's NVFP4, the same in both versions.
var mlxNVFP4 = &quant.Quantizer{Arithmetic: quant.BlockNearest, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero,
	NegativeZero: quant.DropNegativeZero}

// variants are profiles that All omits: other modes or versions of the same libraries.
var variants = []Profile{
	{
		Name:      "torchao-rceil",
		Version:   "0.18",
		Doc:       "PyTorch's torchao, RCEIL, the default of its configurations: smallest scale that saturates nothing",
		mx:        &quant.Quantizer{ExactRatio: true, NonFinite: quant.PoisonNaN, SmallestDivisor: 1, ElementNaN: format.Unchecked},
		undefined: []string{"mxint8"},
	},
	{
		Name:    "mlx-0.31",
		Doc:     "Apple's MLX before 0.32.4: the power of two nearest to amax/max, which may saturate",
		Version: "0.31.2",
		mx:      &quant.Quantizer{Rule: quant.Round, UnitZeroScale: true},
		mxfp4: &quant.Quantizer{Rule: quant.Round, UnitZeroScale: true, Rounding: format.HalfTowardZero, ElementNaN: format.OppositeZero,
			NegativeZero: quant.DropNegativeZero},
		nvfp4:     mlxNVFP4,
		undefined: []string{"mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxint8", "mxfp8-32x32", "nvfp4-16x16"},
	},
}

// Default is the profile of Transformer Engine.
func Default() Profile { return profiles[0] }

// For returns the default profile of a block format: Default, or the first that defines the
// format.
func For(f quant.Format) Profile {
	for _, p := range profiles {
		if !f.Scaled() || p.behavior(f) != nil {
			return p
		}
	}
	return Default()
}

// All returns one profile per library, the default first, without variants.
func All() []Profile { return append([]Profile(nil), profiles...) }

// Lookup returns the profile or variant of a name. Case is ignored.
func Lookup(name string) (Profile, error) {
	var names []string
	for _, p := range slices.Concat(profiles, variants) {
		names = append(names, p.Name)
		if strings.EqualFold(p.Name, name) {
			return p, nil
		}
	}
	return Profile{}, naming.Unknown("profile", name, names)
}

// String returns the profile's name.
func (p Profile) String() string { return p.Name }

// Quantizer returns the library's quantizer for block format f, or an error if the library does
// not define f. For formats without scales, all profiles are the same.
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

// behavior returns the row's quantizer for f, without its format; nil if the library does not
// define f.
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
	case f.Element.Integer:
		return p.ints
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
