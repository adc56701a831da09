// Package quant quantizes tensors to block-scaled formats.
//
// A block of elements shares a scale; a format may add one global scale for the
// tensor. Formats are rows of a table. Scales are always decode scales:
//
//	value = scale × code             MX and FP8
//	value = (scale × global) × code  NVFP4
//
// A Quantizer is a format and a behavior: how the largest magnitude of a block (amax)
// becomes its scale, and how elements round. Its zero value computes what NVIDIA's
// Transformer Engine computes, bit for bit; package profile names the behavior of other
// libraries. Rowwise and Columnwise make a Tensor of codes and scales, RowwiseColumnwise
// makes both from one read:
//
//	load    read a tile by rows, or transpose it for the columnwise copy; apply the Hadamard transform
//	amax    the largest magnitude of each block; that of the tensor or of whole rows from a read before
//	scale   amax → scale code and factor, by the scale rule (E8M0) or the arithmetic (E4M3, FP32), or by a search
//	encode  element × factor, rounded to the element format
//
// Quantizer.Reference (reference.go) is the specification: the same steps, one element after
// another, in simple loops. Results have its bits, whatever the kernels and the number of
// threads. The pipeline is in pipeline.go, the contracts of kernels are in primitives.go.
//
// Sources: OCP Microscaling Formats 1.0 §5 and §6.3 for the MX formats; the
// cuBLAS documentation's scaling modes for NVFP4 and the FP32-scaled formats.
package quant

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/naming"
)

// Shape is the extent of a block over rows and along columns, in elements.
// Zero means the whole extent of the tensor.
type Shape struct{ Rows, Cols int }

// A Format is one block format, comparable by ==. The named rows are the standard ones;
// studies may vary Block.
type Format struct {
	Name    string
	Aliases string         // other projects' names, separated by spaces; case is ignored
	Element *format.Scalar // format of the codes
	Scale   *format.Scalar // E8M0, E4M3, BF16 or F32; nil for none
	Block   Shape          // elements that share a scale
	Global  bool           // a second, FP32 scale for the whole tensor
}

// The table of block formats. Lookup finds those without a variable.
var (
	MXFP8      = row(Format{Name: "mxfp8", Aliases: "mxfp8-e4m3", Element: format.E4M3, Scale: format.E8M0, Block: Shape{1, 32}})
	MXFP8E5M2  = row(Format{Name: "mxfp8-e5m2", Element: format.E5M2, Scale: format.E8M0, Block: Shape{1, 32}})
	MXFP6E3M2  = row(Format{Name: "mxfp6-e3m2", Aliases: "mxfp6_e3m2", Element: format.E3M2, Scale: format.E8M0, Block: Shape{1, 32}})
	MXFP6E2M3  = row(Format{Name: "mxfp6-e2m3", Aliases: "mxfp6_e2m3 mxfp6", Element: format.E2M3, Scale: format.E8M0, Block: Shape{1, 32}})
	MXFP4      = row(Format{Name: "mxfp4", Aliases: "mxfp4-e2m1", Element: format.E2M1, Scale: format.E8M0, Block: Shape{1, 32}})
	MXINT8     = row(Format{Name: "mxint8", Element: format.INT8, Scale: format.E8M0, Block: Shape{1, 32}})
	NVFP4      = row(Format{Name: "nvfp4", Element: format.E2M1, Scale: format.E4M3, Block: Shape{1, 16}, Global: true})
	FP8Tensor  = row(Format{Name: "fp8-tensor", Element: format.E4M3, Scale: format.F32, Block: Shape{0, 0}})
	FP8Row     = row(Format{Name: "fp8-row", Element: format.E4M3, Scale: format.F32, Block: Shape{1, 0}})
	FP8Vec128  = row(Format{Name: "fp8-vec128", Element: format.E4M3, Scale: format.F32, Block: Shape{1, 128}})
	FP8Block   = row(Format{Name: "fp8-block128", Element: format.E4M3, Scale: format.F32, Block: Shape{128, 128}})
	MXFP8x32   = row(Format{Name: "mxfp8-32x32", Element: format.E4M3, Scale: format.E8M0, Block: Shape{32, 32}})
	NVFP4x16   = row(Format{Name: "nvfp4-16x16", Element: format.E2M1, Scale: format.E4M3, Block: Shape{16, 16}, Global: true})
	_          = row(Format{Name: "int4-g32", Element: format.S4, Scale: format.BF16, Block: Shape{1, 32}})
	_          = row(Format{Name: "int4-g64", Element: format.S4, Scale: format.BF16, Block: Shape{1, 64}})
	_          = row(Format{Name: "int4-g128", Element: format.S4, Scale: format.BF16, Block: Shape{1, 128}})
	_          = row(Format{Name: "int8-g128", Element: format.S8, Scale: format.BF16, Block: Shape{1, 128}})
	_          = row(Format{Name: "int8-row", Element: format.S8, Scale: format.BF16, Block: Shape{1, 0}})
	BF16       = row(Format{Name: "bf16", Aliases: "bfloat16", Element: format.BF16})
	F32        = row(Format{Name: "f32", Aliases: "fp32 float32", Element: format.F32})
	allFormats []Format
)

func row(f Format) Format {
	allFormats = append(allFormats, f)
	return f
}

// Q8_0 is ggml's 8-bit format: INT8 with a scale that GGUF files store as FP16. Only llama.cpp uses
// it. Formats does not list it, but Lookup finds it.
var Q8_0 = Format{Name: "q8_0", Element: format.INT8, Scale: format.F32, Block: Shape{1, 32}}

// Formats returns the rows of the table in their order.
func Formats() []Format { return append([]Format(nil), allFormats...) }

// Lookup finds a block format by its name or an alias. Case is ignored.
func Lookup(name string) (Format, error) {
	names := make([]string, len(allFormats))
	for i, f := range allFormats {
		names[i] = f.Name
		if strings.EqualFold(f.Name, name) {
			return f, nil
		}
		for _, a := range strings.Fields(f.Aliases) {
			if strings.EqualFold(a, name) {
				return f, nil
			}
		}
	}
	if strings.EqualFold(name, Q8_0.Name) {
		return Q8_0, nil
	}
	return Format{}, naming.Unknown("block format", name, names)
}

// String returns the format's name.
func (f Format) String() string { return f.Name }

// Scaled reports whether the format has scales: bf16 and f32 do not.
func (f Format) Scaled() bool { return f.Scale != nil }

// ByteScales reports whether scales take one byte: E8M0 and E4M3, not BF16 and FP32.
func (f Format) ByteScales() bool { return f.Scaled() && f.Scale.StoredBits() == 8 }

// PerTensor reports whether there is one scale for the whole tensor.
func (f Format) PerTensor() bool { return f.Scaled() && f.Block == Shape{} }

// NeedsAmax reports whether quantizing a part of a tensor requires the amax of the whole: the format
// has a global scale, or one scale per tensor.
func (f Format) NeedsAmax() bool { return f.Global || f.PerTensor() }

// Square reports whether blocks are square, so that a tensor and its transpose have the same codes and
// scales.
func (f Format) Square() bool { return f.Block.Rows == f.Block.Cols }

// PaddedCols returns the number of stored elements of a row of cols elements: zeros pad the last
// block.
func (f Format) PaddedCols(cols int) int {
	if f.Block.Cols == 0 {
		return cols
	}
	return ceilDiv(cols, f.Block.Cols) * f.Block.Cols
}

// Bytes returns the bytes of the codes and scales of a rowwise tensor, without a global scale.
func (f Format) Bytes(rows, cols int) int {
	bytes := rows * ((f.PaddedCols(cols)*f.Element.StoredBits() + 7) / 8)
	if f.Scaled() {
		scaleRows, scaleCols := f.ScaleShape(rows, cols)
		bytes += scaleRows * scaleCols * f.Scale.StoredBits() / 8
	}
	return bytes
}

// ScaleShape returns the rows and columns of the scales of a rowwise tensor.
func (f Format) ScaleShape(rows, cols int) (scaleRows, scaleCols int) {
	if !f.Scaled() {
		return 0, 0
	}
	return blocks(rows, f.Block.Rows), blocks(cols, f.Block.Cols)
}

// BitsPerElement returns the bits of an element and its share of the block's scale. It ignores scales
// of whole rows, columns or tensors, and padding.
func (f Format) BitsPerElement() float64 {
	bits := float64(f.Element.StoredBits())
	if n := f.Block.Rows * f.Block.Cols; f.Scaled() && n > 0 {
		bits += float64(f.Scale.StoredBits()) / float64(n)
	}
	return bits
}

// maxBlockSide limits the sides of blocks: a row is stored as whole blocks, and tiles consist of
// them.
const maxBlockSide = 4096

// Validate returns an error if f cannot be quantized to: for unsupported element or scale formats, and
// for blocks that are too large or do not fill whole bytes.
func (f Format) Validate() error {
	switch {
	case f.Element == nil:
		return fmt.Errorf("block format %q has no element format", f.Name)
	case f.Element.Unsigned:
		return fmt.Errorf("block format %q: %s elements have no sign", f.Name, f.Element)
	case !f.Scaled() && f.Element != format.BF16 && f.Element != format.F32:
		return fmt.Errorf("block format %q: %s elements need a scale", f.Name, f.Element)
	case f.Scaled() && f.Element.Bits() > 8:
		return fmt.Errorf("block format %q: elements of more than 8 bits take no scale", f.Name)
	case f.Scaled() && f.Scale != format.E8M0 && f.Scale != format.E4M3 && f.Scale != format.BF16 && f.Scale != format.F32:
		return fmt.Errorf("block format %q: scales are e8m0, e4m3, bf16 or f32, not %s", f.Name, f.Scale)
	case f.Global && f.Scale != format.E4M3:
		return fmt.Errorf("block format %q: only e4m3 scales take a global scale", f.Name)
	case f.Block.Rows < 0 || f.Block.Cols < 0:
		return fmt.Errorf("block format %q: negative block shape", f.Name)
	case f.Block.Rows > maxBlockSide || f.Block.Cols > maxBlockSide:
		return fmt.Errorf("block format %q: got blocks of %d×%d, want sides of at most %d; 0 is a whole row or column", f.Name, f.Block.Rows,
			f.Block.Cols, maxBlockSide)
	}
	if _, ok := f.Element.StoredBytes(f.Block.Cols); !ok || f.Block.Cols == 0 && f.Element.StoredBits() < 8 {
		return fmt.Errorf("block format %q: blocks of %d %s codes do not fill whole bytes", f.Name, f.Block.Cols, f.Element)
	}
	return nil
}

// same reports whether f and g store the same codes and scales. It ignores names.
func (f Format) same(g Format) bool {
	return f.Element == g.Element && f.Scale == g.Scale && f.Block == g.Block && f.Global == g.Global
}

// blocks returns how many blocks of the given extent cover n elements.
func blocks(n, extent int) int {
	switch {
	case extent == 0 && n == 0:
		return 0
	case extent == 0:
		return 1
	}
	return ceilDiv(n, extent)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
