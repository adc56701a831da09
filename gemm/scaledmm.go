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

// Scaling says which elements of an operand of ScaledMM share a scale, with the names of
// PyTorch's scaled_mm (ScalingType in its BlasBackend.h).
type Scaling uint8

const (
	TensorWise       Scaling = iota // one FP32 scale
	RowWise                         // one FP32 scale per row
	BlockWise1x16                   // one E4M3 scale per 16 elements of a row, and an FP32 scale for the tensor
	BlockWise1x32                   // one E8M0 scale per 32 elements of a row
	BlockWise1x128                  // one FP32 scale per 128 elements of a row
	BlockWise128x128                // one FP32 scale per 128×128 elements
)

// scalings lists the name of each scaling and a block format that uses it.
var scalings = []struct {
	name string
	like quant.Format
}{
	TensorWise:       {"TensorWise", quant.FP8Tensor},
	RowWise:          {"RowWise", quant.FP8Row},
	BlockWise1x16:    {"BlockWise1x16", quant.NVFP4},
	BlockWise1x32:    {"BlockWise1x32", quant.MXFP8},
	BlockWise1x128:   {"BlockWise1x128", quant.FP8Vec128},
	BlockWise128x128: {"BlockWise128x128", quant.FP8Block},
}

// String returns PyTorch's name.
func (s Scaling) String() string {
	if int(s) >= len(scalings) {
		return fmt.Sprintf("Scaling(%d)", uint8(s))
	}
	return scalings[s].name
}

// Swizzling is the order of an operand's scales in memory.
type Swizzling uint8

const (
	NoSwizzle     Swizzling = iota // see Scaled
	Swizzle32x4x4                  // tiles of 128 rows × 4 blocks, as tensor cores read them (package layout)
)

// Scaled is one operand of ScaledMM: Lines rows of K elements, without padding. Both
// operands store their elements along K; b is the second matrix of PyTorch's scaled_mm,
// transposed.
//
// Without a swizzle, the scales are in the order of PyTorch's tensors:
//
//	TensorWise         1
//	RowWise            rows
//	BlockWise1x16, 32  rows × blocks, row-major
//	BlockWise1x128     rows × ⌈K/128⌉, column-major: index = block·rows + row
//	BlockWise128x128   ⌈rows/128⌉ × ⌈K/128⌉, the latter padded to a multiple of 4
type Scaled struct {
	Lines, K  int
	Element   *format.Scalar
	Codes     []byte
	Scaling   Scaling
	Scales    []byte    // of BlockWise1x16 and BlockWise1x32
	Scales32  []float32 // of the others
	Swizzling Swizzling // of Scales
	Global    *float32  // decode scale of the tensor; BlockWise1x16 only, for both operands or neither
}

// scaledPairs lists the supported pairs of scalings and their element formats.
var scaledPairs = []struct {
	a, b     Scaling
	elements []*format.Scalar
}{
	{TensorWise, TensorWise, []*format.Scalar{format.E4M3, format.E5M2}},
	{RowWise, RowWise, []*format.Scalar{format.E4M3, format.E5M2}},
	{BlockWise1x128, BlockWise128x128, []*format.Scalar{format.E4M3}},
	{BlockWise128x128, BlockWise1x128, []*format.Scalar{format.E4M3}},
	{BlockWise1x128, BlockWise1x128, []*format.Scalar{format.E4M3}},
	{BlockWise1x32, BlockWise1x32, []*format.Scalar{format.E4M3, format.E2M1}},
	{BlockWise1x16, BlockWise1x16, []*format.Scalar{format.E2M1}},
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
	if int(a.Scaling) >= len(scalings) || int(b.Scaling) >= len(scalings) {
		return nil, nil, fmt.Errorf("gemm: unknown scaling: a has %s, b has %s", a.Scaling, b.Scaling)
	}
	if min(a.Lines, a.K, b.Lines, b.K) < 0 {
		return nil, nil, fmt.Errorf("gemm: shape: got a %d×%d and b %d×%d, want no negative dimension", a.Lines, a.K, b.Lines, b.K)
	}
	if a.K != b.K {
		return nil, nil, fmt.Errorf("gemm: shape: got a %d×%d and b %d×%d, want equal second dimensions, K", a.Lines, a.K, b.Lines, b.K)
	}
	const divisor = 16
	if a.K%divisor != 0 || b.Lines%divisor != 0 {
		return nil, nil, fmt.Errorf("gemm: shape: got a %d×%d and b %d×%d, want multiples of %d for K and the rows of b", a.Lines, a.K, b.Lines, b.K, divisor)
	}
	i := slices.IndexFunc(scaledPairs, func(p struct {
		a, b     Scaling
		elements []*format.Scalar
	}) bool {
		return p.a == a.Scaling && p.b == b.Scaling
	})
	if i < 0 {
		var list []string
		for _, p := range scaledPairs {
			list = append(list, fmt.Sprintf("%s·%s", p.a, p.b))
		}
		return nil, nil, fmt.Errorf("gemm: scaling: got %s·%s, want one of %s", a.Scaling, b.Scaling, strings.Join(list, ", "))
	}
	for _, e := range []*format.Scalar{a.Element, b.Element} {
		if !slices.Contains(scaledPairs[i].elements, e) {
			return nil, nil, fmt.Errorf("gemm: %s elements: got %v, want one of %v", a.Scaling, e, scaledPairs[i].elements)
		}
	}
	switch {
	case a.Element == format.E5M2 && b.Element == format.E5M2:
		return nil, nil, fmt.Errorf("gemm: elements: got e5m2 × e5m2, want e4m3 for at least one operand")
	case a.Scaling == BlockWise1x32 && a.Element != b.Element:
		return nil, nil, fmt.Errorf("gemm: %s elements: got %s × %s, want equal formats", a.Scaling, a.Element, b.Element)
	case (a.Global == nil) != (b.Global == nil):
		return nil, nil, fmt.Errorf("gemm: global scale: got one operand with and one without, want both or neither")
	}
	if x, err = a.tensor("a"); err != nil {
		return nil, nil, err
	}
	if y, err = b.tensor("b"); err != nil {
		return nil, nil, err
	}
	return x, y, nil
}

// tensor returns the operand as a tensor that shares its codes and, if their order is the
// same, its scales.
func (s Scaled) tensor(name string) (*quant.Tensor, error) {
	f := scalings[s.Scaling].like
	f.Element = s.Element
	f.Name = fmt.Sprintf("%s %s", s.Scaling, s.Element)
	if f.Block.Cols > 0 && f.Block.Cols <= 32 && s.K%f.Block.Cols != 0 {
		return nil, fmt.Errorf("gemm: %s: got %d×%d, want K a multiple of the block size %d", name, s.Lines, s.K, f.Block.Cols)
	}
	if s.Global != nil && !f.Global {
		return nil, fmt.Errorf("gemm: %s: %s does not support a global scale", name, s.Scaling)
	}
	if s.Swizzling != NoSwizzle && (s.Swizzling != Swizzle32x4x4 || f.Scale == format.F32) {
		return nil, fmt.Errorf("gemm: %s: %s does not support swizzling %d", name, s.Scaling, s.Swizzling)
	}
	rowBytes, ok := s.Element.StoredBytes(s.K)
	fits := s.Lines == 0 || s.K <= 2*len(s.Codes) // a code has at least half a byte; a larger K would overflow
	if beyond, n := bits.Mul(uint(s.Lines), uint(rowBytes)); !ok || !fits || beyond != 0 || n != uint(len(s.Codes)) {
		return nil, fmt.Errorf("gemm: %s (%s %d×%d %s): codes: got %d bytes, want %d per row", name, s.Scaling, s.Lines, s.K, s.Element, len(s.Codes), rowBytes)
	}
	t := &quant.Tensor{Format: f, Shape: []int{s.Lines, s.K}, Codes: s.Codes, Scales: s.Scales, Scales32: s.Scales32, Global: 1}
	if s.Global != nil {
		t.Global = *s.Global
	}
	if stored := f.StoredCols(s.K); stored != s.K { // pad; the elements have one byte
		t.Codes = make([]byte, s.Lines*stored)
		for l := range s.Lines {
			copy(t.Codes[l*stored:], s.Codes[l*s.K:(l+1)*s.K])
		}
	}
	rows, cols := t.ScaleShape()
	padded, size := cols, rows*cols
	switch {
	case s.Scaling == BlockWise128x128:
		padded = ceilDiv(cols, 4) * 4
		size = rows * padded
	case s.Swizzling == Swizzle32x4x4:
		size = layout.Swizzled.Size(rows, cols)
	}
	has, others := len(s.Scales), len(s.Scales32)
	if f.Scale == format.F32 {
		has, others = others, has
	}
	if has != size || others > 0 {
		return nil, fmt.Errorf("gemm: %s (%s %d×%d): scales: got %d of 8 bits and %d of FP32, want %d of %s", name, s.Scaling, s.Lines, s.K, len(s.Scales), len(s.Scales32), size, f.Scale)
	}
	switch {
	case size == 0: // with any number of rows
	case s.Scaling == BlockWise1x128:
		t.Scales32 = make([]float32, size)
		for i := range rows {
			for j := range cols {
				t.Scales32[i*cols+j] = s.Scales32[j*rows+i]
			}
		}
	case s.Scaling == BlockWise128x128:
		t.Scales32 = make([]float32, rows*cols)
		for i := range rows {
			copy(t.Scales32[i*cols:(i+1)*cols], s.Scales32[i*padded:])
		}
	case s.Swizzling == Swizzle32x4x4:
		t.Scales = make([]byte, rows*cols)
		layout.Unswizzle(t.Scales, s.Scales, rows, cols)
	}
	return t, nil
}
