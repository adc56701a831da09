package device

import (
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// An Architecture is a generation of matrix units and what libraries run on it.
type Architecture struct {
	Name   string // "Hopper"
	Target string // "sm_90" or "gfx942"

	// Capability is NVIDIA's compute capability, major and minor; zero for AMD.
	Capability [2]int

	Modes []Mode
}

// A Layout says which operands of a product C = op(A)·op(B) are transposed, for column-major
// matrices: "TN", "NN", "NT" or "TT".
type Layout string

const (
	tn Layout = "TN"
	nn Layout = "NN"
	nt Layout = "NT"
	tt Layout = "TT"
)

// A Mode is one kind of product that a library offers on an architecture.
type Mode struct {
	Library  string
	Elements []*format.Scalar // of either operand
	Scalings []Scaling        // of either operand; none: unscaled

	Layouts []Layout

	// RowBytes is what the bytes of each operand's contiguous dimension, and of the
	// result's in BF16, are multiples of. The others are multiples in elements, 0 for none:
	// Narrow of the contiguous dimension of operands below 8 bits, Contraction of the
	// summed dimension, Outer of the other two.
	RowBytes, Narrow, Contraction, Outer int

	// NotBoth lists what at most one operand may have, such as "E5M2 elements".
	NotBoth []string

	Condition string // versions, outputs; "" for none
	Source    *Source
}

// A Scaling is a scale mode of a library.
type Scaling struct {
	Name  string // the library's, such as VEC32_UE8M0
	Scale *format.Scalar
	Block quant.Shape
}

// accepts reports whether the scaling applies to operands of format f. One-byte scales of
// blocks that span rows are repeated for each row, as hardware reads them.
func (s Scaling) accepts(f quant.Format) bool {
	if f.Scale != s.Scale {
		return false
	}
	return f.Block == s.Block || f.ByteScales() && f.Block.Cols == s.Block.Cols && f.Block.Rows > 0
}

// scaling returns the scaling of mode m for f, and whether there is one.
func (m *Mode) scaling(f quant.Format) (Scaling, bool) {
	if !slices.Contains(m.Elements, f.Element) {
		return Scaling{}, false
	}
	if !f.Scaled() {
		return Scaling{Name: "none"}, len(m.Scalings) == 0
	}
	i := slices.IndexFunc(m.Scalings, func(s Scaling) bool { return s.accepts(f) })
	if i < 0 {
		return Scaling{}, false
	}
	return m.Scalings[i], true
}

// shared lists what both formats have and m accepts in one operand only.
func (m *Mode) shared(a, b quant.Format) []string {
	var list []string
	for _, property := range m.NotBoth {
		if has := properties[property]; has(a) && has(b) {
			list = append(list, property)
		}
	}
	return list
}

// Values of Mode.NotBoth.
const (
	e5m2Elements = "E5M2 elements"
	squareBlocks = "128×128 blocks"
)

// properties has the test of each value of Mode.NotBoth.
var properties = map[string]func(quant.Format) bool{
	e5m2Elements: func(f quant.Format) bool { return f.Element == format.E5M2 },
	squareBlocks: func(f quant.Format) bool { return f.Block == quant.Shape{Rows: 128, Cols: 128} },
}

// The scale modes: cuBLASLt's names, which hipBLASLt shares.
var (
	scalar    = Scaling{"SCALAR_32F", format.F32, quant.Shape{}}
	outerVec  = Scaling{"OUTER_VEC_32F", format.F32, quant.Shape{Rows: 1}}
	vec128    = Scaling{"VEC128_32F", format.F32, quant.Shape{Rows: 1, Cols: 128}}
	blk128    = Scaling{"BLK128x128_32F", format.F32, quant.Shape{Rows: 128, Cols: 128}}
	vec32E8M0 = Scaling{"VEC32_UE8M0", format.E8M0, quant.Shape{Rows: 1, Cols: 32}}
	vec16E4M3 = Scaling{"VEC16_UE4M3", format.E4M3, quant.Shape{Rows: 1, Cols: 16}}
)

var (
	ocpFP8   = []*format.Scalar{format.E4M3, format.E5M2}
	mxFP     = []*format.Scalar{format.E4M3, format.E5M2, format.E3M2, format.E2M3, format.E2M1}
	fp4      = []*format.Scalar{format.E2M1}
	unscaled = []*format.Scalar{format.BF16, format.F32}
	all      = []Layout{tn, nn, nt, tt}
	onlyTN   = []Layout{tn}
	oneE5M2  = []string{e5m2Elements}
)

// plain is the product of unscaled operands, on every architecture.
func plain(library string, s *Source) Mode {
	return Mode{Library: library, Elements: unscaled, Layouts: all, Source: s}
}

// rowBytes is the alignment of rows and pointers that NVIDIA's matrix units need.
const rowBytes = 16

// cublas completes a mode of cuBLASLt.
func cublas(m Mode) Mode {
	m.Library, m.RowBytes, m.Source = "cuBLASLt", rowBytes, &docCUBLAS
	return m
}

// cutlass completes a mode of CUTLASS.
func cutlass(m Mode) Mode {
	m.Library, m.RowBytes, m.Source = "CUTLASS", rowBytes, &docCUTLASS
	return m
}

// hip completes a mode of hipBLASLt, which documents TN for FP8 and says nothing of the others.
func hip(m Mode, s *Source) Mode {
	m.Library, m.Layouts, m.Source = "hipBLASLt", onlyTN, s
	return m
}

const (
	fp32Compute  = "FP32 compute type and scale type; pointers aligned to 16 bytes"
	cuda129      = "CUDA 12.9 or later"
	swizzled     = "scales swizzled in tiles of 128×4"
	undocumented = "other layouts than TN are not documented"
)

// Modes of NVIDIA's architectures.
var (
	perTensorTN  = cublas(Mode{Elements: ocpFP8, Scalings: []Scaling{scalar}, Layouts: onlyTN, NotBoth: oneE5M2, Condition: fp32Compute})
	perTensorAny = cublas(Mode{Elements: ocpFP8, Scalings: []Scaling{scalar}, Layouts: all, NotBoth: oneE5M2, Condition: fp32Compute})
	outerTN      = cublas(Mode{Elements: ocpFP8, Scalings: []Scaling{outerVec}, Layouts: onlyTN, NotBoth: oneE5M2, Condition: cuda129})
	blocksTN     = cublas(Mode{Elements: ocpFP8, Scalings: []Scaling{vec128, blk128}, Layouts: onlyTN, Outer: 8,
		NotBoth: []string{e5m2Elements, squareBlocks}, Condition: cuda129})
	mx8Any  = cublas(Mode{Elements: ocpFP8, Scalings: []Scaling{vec32E8M0}, Layouts: all, NotBoth: oneE5M2, Condition: swizzled})
	nvfp4TN = cublas(Mode{Elements: fp4, Scalings: []Scaling{vec16E4M3}, Layouts: onlyTN, Condition: swizzled})
	mx4TN   = cutlass(Mode{Elements: fp4, Scalings: []Scaling{vec32E8M0}, Layouts: onlyTN, Condition: "kind::mxf4; " + swizzled})
	mxAny   = cutlass(Mode{Elements: mxFP, Scalings: []Scaling{vec32E8M0}, Layouts: all, Narrow: 128, Condition: "kind::mxf8f6f4; " +
		swizzled})
	mxTN120 = cutlass(Mode{Elements: mxFP, Scalings: []Scaling{vec32E8M0}, Layouts: onlyTN, Narrow: 128,
		Condition: "kind::mxf8f6f4 of mma.sync; clusters of 1×1×1"})
	nvfp4TN120 = cutlass(Mode{Elements: fp4, Scalings: []Scaling{vec16E4M3}, Layouts: onlyTN,
		Condition: "kind::mxf4nvf4 of mma.sync; clusters of 1×1×1"})
)

// Modes of AMD's architectures.
var (
	fnuz = hip(Mode{Elements: []*format.Scalar{format.E4M3FNUZ, format.E5M2FNUZ}, Scalings: []Scaling{scalar, outerVec},
		Condition: "FNUZ codes; " + undocumented}, &docHipTypes)
	ocpHip = hip(Mode{Elements: ocpFP8, Scalings: []Scaling{scalar, outerVec}, Condition: undocumented}, &docHipTypes)
	mxHip  = hip(Mode{Elements: mxFP, Scalings: []Scaling{vec32E8M0}, Contraction: 128, Outer: 16,
		Condition: "no batches and no epilogue; scales in the order of their operand"}, &docHipBLASLt)
)

// The table of architectures.
var (
	ada          = &Architecture{"Ada", "sm_89", [2]int{8, 9}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorTN}}
	hopper       = &Architecture{"Hopper", "sm_90", [2]int{9, 0}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorTN, outerTN, blocksTN}}
	blackwell100 = &Architecture{"Blackwell", "sm_100", [2]int{10, 0}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorAny, mx8Any, nvfp4TN,
		mx4TN, mxAny}}
	blackwell103 = &Architecture{"Blackwell Ultra", "sm_103", [2]int{10, 3}, blackwell100.Modes}
	blackwell120 = &Architecture{"RTX Blackwell", "sm_120", [2]int{12, 0}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorTN, mxTN120,
		nvfp4TN120}}
	cdna3 = &Architecture{"CDNA3", "gfx942", [2]int{}, []Mode{plain("hipBLASLt", &docHipTypes), fnuz}}
	cdna4 = &Architecture{"CDNA4", "gfx950", [2]int{}, []Mode{plain("hipBLASLt", &docHipTypes), ocpHip, mxHip}}
)

// String returns the name and target.
func (a *Architecture) String() string { return a.Name + " " + a.Target }

// nvidia reports whether the architecture is NVIDIA's.
func (a *Architecture) nvidia() bool { return a.Capability != [2]int{} }

// atLeast reports whether the compute capability is at least c.
func (a *Architecture) atLeast(c [2]int) bool { return slices.Compare(a.Capability[:], c[:]) >= 0 }
