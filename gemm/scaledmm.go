package gemm

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A scaling is a shape of the blocks that share a scale, with PyTorch's name (ScalingType in
// its BlasBackend.h).
type scaling uint8

const (
	tensorWise scaling = iota
	rowWise
	blockWise1x16
	blockWise1x32
	blockWise1x128
	blockWise128x128
)

// scalings lists the name of each scaling and a block format that uses it.
var scalings = [...]struct {
	name string
	like quant.Format
}{
	tensorWise:       {"TensorWise", quant.FP8Tensor},
	rowWise:          {"RowWise", quant.FP8Row},
	blockWise1x16:    {"BlockWise1x16", quant.NVFP4},
	blockWise1x32:    {"BlockWise1x32", quant.MXFP8},
	blockWise1x128:   {"BlockWise1x128", quant.FP8Vec128},
	blockWise128x128: {"BlockWise128x128", quant.FP8Block},
}

// String returns PyTorch's name.
func (s scaling) String() string { return scalings[s].name }

// Scaled is one operand of ScaledMM: Rows rows of K elements, without padding. Both operands
// store their elements along K; b is the second matrix of PyTorch's scaled_mm, transposed.
//
// Block is the shape of the elements that share a scale, as in quant.Format. The scales are in
// the order of PyTorch's tensors, whose names for the shapes are:
//
//	{0, 0}      TensorWise        one FP32 scale
//	{1, 0}      RowWise           one FP32 scale per row
//	{1, 16}     BlockWise1x16     E4M3: rows × blocks, row-major
//	{1, 32}     BlockWise1x32     E8M0: rows × blocks, row-major
//	{1, 128}    BlockWise1x128    FP32: rows × ⌈K/128⌉, column-major: index = block·rows + row
//	{128, 128}  BlockWise128x128  FP32: ⌈rows/128⌉ × ⌈K/128⌉, the latter padded to a multiple of 4
type Scaled struct {
	Rows, K  int
	Element  *format.Scalar
	Codes    []byte
	Block    quant.Shape
	Scales   []byte    // of E4M3 or E8M0
	Scales32 []float32 // of FP32
	Swizzled bool      // Scales are in tiles of 128 rows × 4 blocks, as tensor cores read them (package layout)
	Global   *float32  // decode scale of the tensor; with E4M3 only, for both operands or neither
}

// scaling returns the scaling with the operand's blocks.
func (s Scaled) scaling() (scaling, bool) {
	i := slices.IndexFunc(scalings[:], func(x struct {
		name string
		like quant.Format
	}) bool {
		return x.like.Block == s.Block
	})
	return scaling(max(i, 0)), i >= 0
}

// scaledPairs lists the supported pairs of scalings and their element formats.
var scaledPairs = []struct {
	a, b     scaling
	elements []*format.Scalar
}{
	{tensorWise, tensorWise, []*format.Scalar{format.E4M3, format.E5M2}},
	{rowWise, rowWise, []*format.Scalar{format.E4M3, format.E5M2}},
	{blockWise1x128, blockWise128x128, []*format.Scalar{format.E4M3}},
	{blockWise128x128, blockWise1x128, []*format.Scalar{format.E4M3}},
	{blockWise1x128, blockWise1x128, []*format.Scalar{format.E4M3}},
	{blockWise1x32, blockWise1x32, []*format.Scalar{format.E4M3, format.E2M1}},
	{blockWise1x16, blockWise1x16, []*format.Scalar{format.E2M1}},
}

// ScaledMM is Mul with the operands and the checks of PyTorch's scaled_mm. It returns an error
// if a pair of scalings or an element format is unsupported, if K or N is not a multiple of
// 16, if K is not a multiple of a block size of 16 or 32, or if the number of codes or scales
// does not match the shape.
//
// ScaledMM copies scales of 128 elements and swizzled scales. It copies codes if K is not a
// multiple of 128 and the scaling has blocks of 128. Global scales multiply the sum before it
// is rounded.
func ScaledMM(c tensor.Dense, a, b Scaled, o Options) error {
	x, y, err := scaledOperands(a, b)
	if err != nil {
		return err
	}
	return Mul(c, x, y, o)
}

// ScaledMMBF16 is ScaledMM with the result rounded to BF16, as MulBF16 does.
func ScaledMMBF16(c *quant.Tensor, a, b Scaled, o Options) error {
	x, y, err := scaledOperands(a, b)
	if err != nil {
		return err
	}
	return MulBF16(c, x, y, o)
}

func scaledOperands(a, b Scaled) (x, y *quant.Tensor, err error) {
	as, okA := a.scaling()
	bs, okB := b.scaling()
	if !okA || !okB {
		return nil, nil, fmt.Errorf("gemm: blocks: a has %d×%d, b has %d×%d: want shapes with a scaling (see Scaled)", a.Block.Rows, a.Block.Cols,
			b.Block.Rows, b.Block.Cols)
	}
	if min(a.Rows, a.K, b.Rows, b.K) < 0 {
		return nil, nil, fmt.Errorf("gemm: shape: got a %d×%d and b %d×%d, want no negative dimension", a.Rows, a.K, b.Rows, b.K)
	}
	if a.K != b.K {
		return nil, nil, fmt.Errorf("gemm: shape: got a %d×%d and b %d×%d, want equal second dimensions, K", a.Rows, a.K, b.Rows, b.K)
	}
	const divisor = 16
	if a.K%divisor != 0 || b.Rows%divisor != 0 {
		return nil, nil, fmt.Errorf("gemm: shape: got a %d×%d and b %d×%d, want multiples of %d for K and the rows of b", a.Rows, a.K, b.Rows,
			b.K, divisor)
	}
	i := slices.IndexFunc(scaledPairs, func(p struct {
		a, b     scaling
		elements []*format.Scalar
	}) bool {
		return p.a == as && p.b == bs
	})
	if i < 0 {
		var list []string
		for _, p := range scaledPairs {
			list = append(list, fmt.Sprintf("%s·%s", p.a, p.b))
		}
		return nil, nil, fmt.Errorf("gemm: scaling: got %s·%s, want one of %s", as, bs, strings.Join(list, ", "))
	}
	for _, e := range []*format.Scalar{a.Element, b.Element} {
		if !slices.Contains(scaledPairs[i].elements, e) {
			return nil, nil, fmt.Errorf("gemm: %s elements: got %v, want one of %v", as, e, scaledPairs[i].elements)
		}
	}
	switch {
	case a.Element == format.E5M2 && b.Element == format.E5M2:
		return nil, nil, fmt.Errorf("gemm: elements: got e5m2 × e5m2, want e4m3 for at least one operand")
	case as == blockWise1x32 && a.Element != b.Element:
		return nil, nil, fmt.Errorf("gemm: %s elements: got %s × %s, want equal formats", as, a.Element, b.Element)
	case (a.Global == nil) != (b.Global == nil):
		return nil, nil, fmt.Errorf("gemm: global scale: got one operand with and one without, want both or neither")
	}
	if x, err = a.tensor("a", as); err != nil {
		return nil, nil, err
	}
	if y, err = b.tensor("b", bs); err != nil {
		return nil, nil, err
	}
	return x, y, nil
}

// tensor returns the operand as a tensor that shares its codes and, if their order is the
// same, its scales.
func (s Scaled) tensor(name string, with scaling) (*quant.Tensor, error) {
	f := scalings[with].like
	f.Element = s.Element
	f.Name = fmt.Sprintf("%s %s", with, s.Element)
	if f.Block.Cols > 0 && f.Block.Cols <= 32 && s.K%f.Block.Cols != 0 {
		return nil, fmt.Errorf("gemm: %s: got %d×%d, want K a multiple of the block size %d", name, s.Rows, s.K, f.Block.Cols)
	}
	if s.Global != nil && !f.Global {
		return nil, fmt.Errorf("gemm: %s: %s does not support a global scale", name, with)
	}
	if s.Swizzled && f.Scale == format.F32 {
		return nil, fmt.Errorf("gemm: %s: %s does not support swizzled scales", name, with)
	}
	rowBytes, ok := s.Element.StoredBytes(s.K)
	fits := s.Rows == 0 || s.K <= 2*len(s.Codes) // a code has at least half a byte; a larger K would overflow
	if beyond, n := bits.Mul(uint(s.Rows), uint(rowBytes)); !ok || !fits || beyond != 0 || n != uint(len(s.Codes)) {
		return nil, fmt.Errorf("gemm: %s (%s %d×%d %s): codes: got %d bytes, want %d per row", name, with, s.Rows, s.K, s.Element, len(s.Codes),
			rowBytes)
	}
	t := &quant.Tensor{Format: f, Shape: []int{s.Rows, s.K}, Codes: s.Codes, Scales: s.Scales, Scales32: s.Scales32, Global: 1}
	if s.Global != nil {
		t.Global = *s.Global
	}
	if stored := f.PaddedCols(s.K); stored != s.K { // pad; the elements have one byte
		t.Codes = make([]byte, s.Rows*stored)
		for l := range s.Rows {
			copy(t.Codes[l*stored:], s.Codes[l*s.K:(l+1)*s.K])
		}
	}
	if err := s.setScales(t, name, with); err != nil {
		return nil, err
	}
	return t, nil
}

// setScales sets the scales of t, row by row and without padding.
func (s Scaled) setScales(t *quant.Tensor, name string, with scaling) error {
	rows, cols := t.ScaleShape()
	padded, size := cols, rows*cols
	switch {
	case with == blockWise128x128:
		padded = ceilDiv(cols, 4) * 4
		size = rows * padded
	case s.Swizzled:
		size = layout.Swizzled.Size(rows, cols)
	}
	has, others := len(s.Scales), len(s.Scales32)
	if t.Format.Scale == format.F32 {
		has, others = others, has
	}
	if has != size || others > 0 {
		return fmt.Errorf("gemm: %s (%s %d×%d): scales: got %d of 8 bits and %d of FP32, want %d of %s", name, with, s.Rows, s.K, len(s.Scales),
			len(s.Scales32), size, t.Format.Scale)
	}
	switch {
	case size == 0: // with any number of rows
	case with == blockWise1x128:
		t.Scales32 = make([]float32, size)
		for i := range rows {
			for j := range cols {
				t.Scales32[i*cols+j] = s.Scales32[j*rows+i]
			}
		}
	case with == blockWise128x128:
		t.Scales32 = make([]float32, rows*cols)
		for i := range rows {
			copy(t.Scales32[i*cols:(i+1)*cols], s.Scales32[i*padded:])
		}
	case s.Swizzled:
		t.Scales = make([]byte, rows*cols)
		layout.Reorder(t.Scales, layout.RowMajor, s.Scales, layout.Swizzled, rows, cols)
	}
	return nil
}
