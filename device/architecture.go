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
// matrices.
type Layout string

// The layouts.
const (
	TN Layout = "TN"
	NN Layout = "NN"
	NT Layout = "NT"
	TT Layout = "TT"
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

	// NotBoth lists what at most one operand may have.
	NotBoth []Pairing

	Condition string // versions, outputs; "" for none
	Source    *Source
}

// A Scaling is a scale mode of a library.
type Scaling struct {
	Name  string // the library's, such as VEC32_UE8M0
	Scale *format.Scalar
	Block quant.Shape
}

// A Pairing is a property of operands that a library does not accept in both.
type Pairing struct {
	What string
	is   func(quant.Format) bool
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
	bothE5M2 = Pairing{"E5M2 elements", func(f quant.Format) bool { return f.Element == format.E5M2 }}
	bothBLK  = Pairing{"128×128 blocks", func(f quant.Format) bool { return f.Block == quant.Shape{Rows: 128, Cols: 128} }}
)

var (
	ocpFP8   = []*format.Scalar{format.E4M3, format.E5M2}
	mxFP     = []*format.Scalar{format.E4M3, format.E5M2, format.E3M2, format.E2M3, format.E2M1}
	fp6      = []*format.Scalar{format.E3M2, format.E2M3, format.E4M3, format.E5M2, format.E2M1}
	fp4      = []*format.Scalar{format.E2M1}
	unscaled = []*format.Scalar{format.BF16, format.F32}
	all      = []Layout{TN, NN, NT, TT}
	onlyTN   = []Layout{TN}
)

// plain is the product of unscaled operands, on every architecture.
func plain(library string, s *Source) Mode {
	return Mode{Library: library, Elements: unscaled, Layouts: all, Source: s}
}

// rowBytes is the alignment of rows and pointers that NVIDIA's matrix units need.
const rowBytes = 16

// Modes of NVIDIA's architectures.
var (
	perTensorTN = Mode{Library: "cuBLASLt", Elements: ocpFP8, Scalings: []Scaling{scalar}, Layouts: onlyTN, RowBytes: rowBytes,
		NotBoth: []Pairing{bothE5M2}, Condition: "FP32 compute type and scale type; pointers aligned to 16 bytes", Source: &docCUBLAS}
	perTensorAny = Mode{Library: "cuBLASLt", Elements: ocpFP8, Scalings: []Scaling{scalar}, Layouts: all, RowBytes: rowBytes,
		NotBoth: []Pairing{bothE5M2}, Condition: "FP32 compute type and scale type; pointers aligned to 16 bytes", Source: &docCUBLAS}
	outerTN = Mode{Library: "cuBLASLt", Elements: ocpFP8, Scalings: []Scaling{outerVec}, Layouts: onlyTN, RowBytes: rowBytes,
		NotBoth: []Pairing{bothE5M2}, Condition: "CUDA 12.9 or later", Source: &docCUBLAS}
	blocksTN = Mode{Library: "cuBLASLt", Elements: ocpFP8, Scalings: []Scaling{vec128, blk128}, Layouts: onlyTN, RowBytes: rowBytes, Outer: 8,
		NotBoth: []Pairing{bothE5M2, bothBLK}, Condition: "CUDA 12.9 or later", Source: &docCUBLAS}
	mx8Any = Mode{Library: "cuBLASLt", Elements: ocpFP8, Scalings: []Scaling{vec32E8M0}, Layouts: all, RowBytes: rowBytes,
		NotBoth: []Pairing{bothE5M2}, Condition: "scales swizzled in tiles of 128×4", Source: &docCUBLAS}
	nvfp4TN = Mode{Library: "cuBLASLt", Elements: fp4, Scalings: []Scaling{vec16E4M3}, Layouts: onlyTN, RowBytes: rowBytes,
		Condition: "scales swizzled in tiles of 128×4", Source: &docCUBLAS}
	mx4TN = Mode{Library: "CUTLASS", Elements: fp4, Scalings: []Scaling{vec32E8M0}, Layouts: onlyTN, RowBytes: rowBytes,
		Condition: "kind::mxf4; scales swizzled in tiles of 128×4", Source: &docCUTLASS}
	mx6Any = Mode{Library: "CUTLASS", Elements: fp6, Scalings: []Scaling{vec32E8M0}, Layouts: all, RowBytes: rowBytes, Narrow: 128,
		Condition: "kind::mxf8f6f4; scales swizzled in tiles of 128×4", Source: &docCUTLASS}
	mxTN120 = Mode{Library: "CUTLASS", Elements: mxFP, Scalings: []Scaling{vec32E8M0}, Layouts: onlyTN, RowBytes: rowBytes, Narrow: 128,
		Condition: "kind::mxf8f6f4 of mma.sync; clusters of 1×1×1", Source: &docCUTLASS}
	nvfp4TN120 = Mode{Library: "CUTLASS", Elements: fp4, Scalings: []Scaling{vec16E4M3}, Layouts: onlyTN, RowBytes: rowBytes,
		Condition: "kind::mxf4nvf4 of mma.sync; clusters of 1×1×1", Source: &docCUTLASS}
)

// Modes of AMD's architectures. hipBLASLt documents TN for FP8 and says nothing of the others.
var (
	fnuz = Mode{Library: "hipBLASLt", Elements: []*format.Scalar{format.E4M3FNUZ, format.E5M2FNUZ}, Scalings: []Scaling{scalar, outerVec}, Layouts: onlyTN,
		Condition: "FNUZ codes; other layouts than TN are not documented", Source: &docHipTypes}
	ocpHip = Mode{Library: "hipBLASLt", Elements: ocpFP8, Scalings: []Scaling{scalar, outerVec}, Layouts: onlyTN,
		Condition: "other layouts than TN are not documented", Source: &docHipTypes}
	mxHip = Mode{Library: "hipBLASLt", Elements: mxFP, Scalings: []Scaling{vec32E8M0}, Layouts: onlyTN,
		Contraction: 128, Outer: 16, Condition: "no batches and no epilogue; scales in the order of their operand", Source: &docHipBLASLt}
)

// The table of architectures.
var (
	Ada          = &Architecture{"Ada", "sm_89", [2]int{8, 9}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorTN}}
	Hopper       = &Architecture{"Hopper", "sm_90", [2]int{9, 0}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorTN, outerTN, blocksTN}}
	Blackwell100 = &Architecture{"Blackwell", "sm_100", [2]int{10, 0}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorAny, mx8Any, nvfp4TN, mx4TN, mx6Any}}
	Blackwell103 = &Architecture{"Blackwell Ultra", "sm_103", [2]int{10, 3}, Blackwell100.Modes}
	Blackwell120 = &Architecture{"RTX Blackwell", "sm_120", [2]int{12, 0}, []Mode{plain("cuBLASLt", &docCUBLAS), perTensorTN, mxTN120, nvfp4TN120}}
	CDNA3        = &Architecture{"CDNA3", "gfx942", [2]int{}, []Mode{plain("hipBLASLt", &docHipTypes), fnuz}}
	CDNA4        = &Architecture{"CDNA4", "gfx950", [2]int{}, []Mode{plain("hipBLASLt", &docHipTypes), ocpHip, mxHip}}
)

// Architectures returns the architectures of the table.
func Architectures() []*Architecture {
	return []*Architecture{Ada, Hopper, Blackwell100, Blackwell103, Blackwell120, CDNA3, CDNA4}
}

// String returns the name and target.
func (a *Architecture) String() string { return a.Name + " " + a.Target }

// nvidia reports whether the architecture is NVIDIA's.
func (a *Architecture) nvidia() bool { return a.Capability != [2]int{} }

// atLeast reports whether the compute capability is at least major.minor.
func (a *Architecture) atLeast(major, minor int) bool {
	return a.Capability[0] > major || a.Capability[0] == major && a.Capability[1] >= minor
}
