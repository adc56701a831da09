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

// A support row is a recipe of Transformer Engine: which formats, and whether an architecture
// has it. Messages are those of check_recipe_support.
type support struct {
	name     string
	megatron string // --fp8-recipe of Megatron-LM, or "" for none
	multiple int    // of both dimensions of a tensor; 0: not documented
	pad      int    // to which Megatron-LM pads the number of tokens
	is       func(quant.Format) bool
	missing  func(*Architecture) string // the error, or ""
}

const megatronVersions = "Please make sure to use TransformerEngine version >= 2.2.0.dev0 for Float8CurrentScaling, >= 2.1.0 for MXFP8BlockScaling, and >= 2.3.0.dev0 for Float8BlockScaling."

var recipes = []support{
	{"Float8CurrentScaling", "tensorwise", 0, 16, quant.Format.PerTensor, func(a *Architecture) string {
		if !a.atLeast(8, 9) {
			return "Device compute capability 8.9 or higher required for FP8 execution."
		}
		return ""
	}},
	{"MXFP8BlockScaling", "mxfp8", 32, 32, func(f quant.Format) bool {
		return f.Scale == format.E8M0 && f.Element.StoredBits() == 8 && !f.Element.Integer
	}, func(a *Architecture) string {
		switch {
		case a.atLeast(12, 0):
			return "MXFP8 (for all gemm layouts) is not supported on 12.0+ architectures yet."
		case !a.atLeast(10, 0):
			return "Device compute capability 10.0 or higher required for MXFP8 execution."
		}
		return ""
	}},
	{"NVFP4BlockScaling", "", 0, 0, func(f quant.Format) bool { return f.Scale == format.E4M3 }, func(a *Architecture) string {
		if !a.atLeast(10, 0) {
			return "Device compute capability 10.0 or higher required for NVFP4 execution."
		}
		return ""
	}},
	{"Float8BlockScaling", "blockwise", 0, 16, func(f quant.Format) bool { return f.Scale == format.F32 && f.Block.Cols == 128 }, func(a *Architecture) string {
		if !a.atLeast(9, 0) {
			return "FP8 block scaled GEMM requires compute capability 9.0 or higher and CUDA >= 12.9."
		}
		return ""
	}},
}

// statements returns what Transformer Engine and Megatron-LM, which are for NVIDIA's devices,
// and PyTorch on AMD's say of a recipe with the formats of a.
func (a *Answer) statements() []Statement {
	if a.Device.Arch == CDNA4 && a.Input.Scale == format.E8M0 {
		return []Statement{pyTorch(a)}
	}
	if !a.Device.Arch.nvidia() || !a.Input.Scaled() {
		return nil
	}
	for _, r := range recipes {
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
	if wrong := (support{multiple: 32}).misaligned(a); wrong != "" {
		s.OK, s.Says = false, wrong
	}
	return s
}

func (r support) statements(a *Answer) []Statement {
	te := Statement{Library: "Transformer Engine", Recipe: r.name, OK: true, Source: &codeTE}
	switch missing := r.missing(a.Device.Arch); {
	case missing != "":
		te.OK, te.Says = false, "RuntimeError: "+missing
	case r.misaligned(a) != "":
		te.OK, te.Says, te.Source = false, r.misaligned(a), &docTEMXFP8
	case r.name == "Float8BlockScaling" && a.Device.Arch.atLeast(10, 0):
		te.Says, te.Source = "emulated by MXFP8, with scales that are powers of two", &codeTEGemm
	}
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

// misaligned returns what is wrong with the shapes of a for the recipe.
func (r support) misaligned(a *Answer) string {
	for _, d := range []struct {
		name string
		n    int
	}{{"m", a.M}, {"n", a.N}, {"k", a.K}} {
		if r.multiple > 0 && d.n%r.multiple != 0 {
			return fmt.Sprintf("%s is %d, and dimensions must be multiples of %d", d.name, d.n, r.multiple)
		}
	}
	return ""
}
