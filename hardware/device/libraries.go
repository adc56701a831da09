package device

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A Statement is what a training library does with a recipe of the formats on a device.
type Statement struct {
	Library string
	Recipe  string // the library's name
	OK      bool
	Says    string // its error message, or its conditions
	Source  *Source
}

// A trainingRecipe is a recipe of Transformer Engine, with the compute capabilities that
// check_recipe_support accepts and its messages.
type trainingRecipe struct {
	name string
	is   func(quant.Format) bool // whether it quantizes to a format

	first      [2]int // capability that it supports
	tooOld     string // the error below first
	beyond     [2]int // capability that it no longer supports; zero: none
	tooNew     string // the error from there on
	emulatedBy [2]int // capability from which MXFP8 emulates it; zero: none

	multiple int    // of all dimensions; 0: not documented
	megatron string // --fp8-recipe of Megatron-LM, or "" for none
	pad      int    // to which Megatron-LM pads the number of tokens
}

const megatronVersions = "Please make sure to use TransformerEngine version >= 2.2.0.dev0 for Float8CurrentScaling, >= 2.1.0 for " +
	"MXFP8BlockScaling, and >= 2.3.0.dev0 for Float8BlockScaling."

var trainingRecipes = []trainingRecipe{
	{
		name: "Float8CurrentScaling", is: quant.Format.PerTensor,
		first: [2]int{8, 9}, tooOld: "Device compute capability 8.9 or higher required for FP8 execution.",
		megatron: "tensorwise", pad: 16,
	},
	{
		name: "MXFP8BlockScaling", is: func(f quant.Format) bool {
			return f.Scale == format.E8M0 && f.Element.StoredBits() == 8 && !f.Element.Integer
		},
		first: [2]int{10, 0}, tooOld: "Device compute capability 10.0 or higher required for MXFP8 execution.",
		beyond: [2]int{12, 0}, tooNew: "MXFP8 (for all gemm layouts) is not supported on 12.0+ architectures yet.",
		multiple: 32, megatron: "mxfp8", pad: 32,
	},
	{
		name: "NVFP4BlockScaling", is: func(f quant.Format) bool { return f.Scale == format.E4M3 },
		first: [2]int{10, 0}, tooOld: "Device compute capability 10.0 or higher required for NVFP4 execution.",
	},
	{
		name: "Float8BlockScaling", is: func(f quant.Format) bool { return f.Scale == format.F32 && f.Block.Cols == 128 },
		first: [2]int{9, 0}, tooOld: "FP8 block scaled GEMM requires compute capability 9.0 or higher and CUDA >= 12.9.",
		emulatedBy: [2]int{10, 0}, megatron: "blockwise", pad: 16,
	},
}

// statements returns what Transformer Engine and Megatron-LM, which are for NVIDIA's devices,
// and PyTorch on AMD's say of a recipe with the formats of a.
func (a *Answer) statements() []Statement {
	if a.Device.Arch == cdna4 && a.Input.Scale == format.E8M0 {
		return []Statement{pyTorch(a)}
	}
	if !a.Device.Arch.nvidia() || !a.Input.Scaled() {
		return nil
	}
	for _, r := range trainingRecipes {
		if r.is(a.Input) {
			return r.statements(a)
		}
	}
	none := fmt.Sprintf("no recipe quantizes to %s", a.Input)
	return []Statement{{Library: "Transformer Engine", Says: none, Source: &codeTE}}
}

// pyTorch returns the conditions of scaled_mm for MX formats on ROCm.
func pyTorch(a *Answer) Statement {
	s := Statement{Library: "PyTorch", Recipe: "scaled_mm", OK: true, Says: "ROCm 7.0 or later; BF16 or FP16 results", Source: &codePyTorch}
	if wrong := a.misaligned(32); wrong != "" {
		s.OK, s.Says = false, wrong
	}
	return s
}

func (r *trainingRecipe) statements(a *Answer) []Statement {
	te := r.transformerEngine(a)
	if r.megatron == "" {
		return []Statement{te}
	}
	megatron := Statement{Library: "Megatron-LM", Recipe: "--fp8-recipe " + r.megatron, OK: te.OK, Source: &codeMegatron,
		Says: fmt.Sprintf("pads tokens to a multiple of %d; an older Transformer Engine fails with: %s", r.pad, megatronVersions)}
	if !te.OK {
		megatron.Says = "does not check the device: Transformer Engine's error ends the run"
	}
	return []Statement{te, megatron}
}

func (r *trainingRecipe) transformerEngine(a *Answer) Statement {
	s := Statement{Library: "Transformer Engine", Recipe: r.name, OK: true, Source: &codeTE}
	if missing := r.missing(a.Device.Arch); missing != "" {
		s.OK, s.Says = false, "RuntimeError: "+missing
	} else if wrong := a.misaligned(r.multiple); wrong != "" {
		s.OK, s.Says, s.Source = false, wrong, &docTEMXFP8
	} else if r.emulatedBy != [2]int{} && a.Device.Arch.atLeast(r.emulatedBy) {
		s.Says, s.Source = "emulated by MXFP8, with scales that are powers of two", &codeTEGemm
	}
	return s
}

// missing returns the error of the recipe on the architecture, or "".
func (r *trainingRecipe) missing(arch *Architecture) string {
	switch {
	case !arch.atLeast(r.first):
		return r.tooOld
	case r.beyond != [2]int{} && arch.atLeast(r.beyond):
		return r.tooNew
	}
	return ""
}

// misaligned names a dimension that is not a multiple of n, or returns "". n = 0: any will do.
func (r *Request) misaligned(n int) string {
	for _, d := range r.dimensions() {
		if n > 0 && d.size%n != 0 {
			return fmt.Sprintf("%s is %d, and dimensions must be multiples of %d", d.name, d.size, n)
		}
	}
	return ""
}
