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

// Scaling says which elements of an operand of ScaledMM share a scale, in the
// vocabulary of PyTorch's scaled_mm (ScalingType in its BlasBackend.h).
type Scaling uint8

const (
	TensorWise       Scaling = iota // one FP32 scale
	RowWise                         // an FP32 scale for each line
	BlockWise1x16                   // an E4M3 scale for 16 elements of a line, and an FP32 one for the tensor
	BlockWise1x32                   // an E8M0 scale for 32 elements of a line
	BlockWise1x128                  // an FP32 scale for 128 elements of a line
	BlockWise128x128                // an FP32 scale for 128 elements of 128 lines
)

// scalings has the name of each, and a block format that has it.
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

// Swizzling says in which order the scales of an operand stand.
type Swizzling uint8

const (
	NoSwizzle     Swizzling = iota // see Scaled
	Swizzle32x4x4                  // tiles of 128 lines × 4 blocks, as tensor cores read them (package layout)
)

// Scaled is one operand of ScaledMM. Both have their elements along K, as many bytes of
// codes as Lines times those of K elements, without padding; b is what PyTorch takes as the
// transposed second matrix.
//
// Without a swizzle the scales of each scaling stand as PyTorch's tensors do in
// memory:
//
//	TensorWise         1
//	RowWise            lines
//	BlockWise1x16, 32  lines × blocks, line by line
//	BlockWise1x128     lines × ⌈K/128⌉, block by block: index = block·lines + line
//	BlockWise128x128   ⌈lines/128⌉ × ⌈K/128⌉, the latter filled up to a multiple of 4
type Scaled struct {
	Lines, K  int
	Element   *format.Scalar
	Codes     []byte
	Scaling   Scaling
	Scales    []byte    // of BlockWise1x16 and BlockWise1x32
	Scales32  []float32 // of the others
	Swizzling Swizzling // of Scales
	Global    *float32  // decode scale of the tensor; BlockWise1x16 alone, where both operands have one or neither
}

// pairs has the scalings that go together, and the elements they take.
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

// ScaledMM is Mul in the vocabulary of PyTorch's scaled_mm, and as strict: it
// fails where the scalings of a and b do not go together, where elements are not
// those of the scaling, where K or N is no multiple of 16 or does not end with a
// block of 16 or 32, and where codes or scales are not as many as the shape says. Scales of
// 128 elements and swizzled ones are moved, which takes memory, and codes where K is no
// multiple of these 128.
// Global scales are factors of the sum, before anything is rounded.
func ScaledMM(c tensor.Dense, a, b Scaled, o Options) error {
	x, y, err := scaledOperands(a, b)
	if err != nil {
		return err
	}
	return Mul(c, x, y, o)
}

// ScaledMMBF16 is ScaledMM with a result rounded to BF16, as MulBF16 is.
func ScaledMMBF16(c *quant.Tensor, a, b Scaled, o Options) error {
	x, y, err := scaledOperands(a, b)
	if err != nil {
		return err
	}
	return MulBF16(c, x, y, o)
}

func scaledOperands(a, b Scaled) (x, y *quant.Tensor, err error) {
	if int(a.Scaling) >= len(scalings) || int(b.Scaling) >= len(scalings) {
		return nil, nil, fmt.Errorf("gemm: unknown scaling: a is %s, b is %s", a.Scaling, b.Scaling)
	}
	if min(a.Lines, a.K, b.Lines, b.K) < 0 {
		return nil, nil, fmt.Errorf("gemm: a is %d×%d, b %d×%d: no matrix is", a.Lines, a.K, b.Lines, b.K)
	}
	if a.K != b.K {
		return nil, nil, fmt.Errorf("gemm: a is %d×%d, b %d×%d: their second dimensions, K, differ", a.Lines, a.K, b.Lines, b.K)
	}
	const divisor = 16
	if a.K%divisor != 0 || b.Lines%divisor != 0 {
		return nil, nil, fmt.Errorf("gemm: a is %d×%d, b %d×%d: K and the lines of b are to be multiples of %d", a.Lines, a.K, b.Lines, b.K, divisor)
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
		return nil, nil, fmt.Errorf("gemm: %s does not go with %s: use one of %s", a.Scaling, b.Scaling, strings.Join(list, ", "))
	}
	for _, e := range []*format.Scalar{a.Element, b.Element} {
		if !slices.Contains(scaledPairs[i].elements, e) {
			return nil, nil, fmt.Errorf("gemm: %s takes elements of %v, not %v", a.Scaling, scaledPairs[i].elements, e)
		}
	}
	switch {
	case a.Element == format.E5M2 && b.Element == format.E5M2:
		return nil, nil, fmt.Errorf("gemm: e5m2 times e5m2 is not offered: one of a and b is to be e4m3")
	case a.Scaling == BlockWise1x32 && a.Element != b.Element:
		return nil, nil, fmt.Errorf("gemm: %s takes two operands of one element format, not %s and %s", a.Scaling, a.Element, b.Element)
	case (a.Global == nil) != (b.Global == nil):
		return nil, nil, fmt.Errorf("gemm: of a and b only one has a global scale: give both, or neither")
	}
	if x, err = a.tensor("a"); err != nil {
		return nil, nil, err
	}
	if y, err = b.tensor("b"); err != nil {
		return nil, nil, err
	}
	return x, y, nil
}

// tensor returns the operand as a tensor that shares its codes and, where they
// stand in the same order, its scales.
func (s Scaled) tensor(name string) (*quant.Tensor, error) {
	f := scalings[s.Scaling].like
	f.Element = s.Element
	f.Name = fmt.Sprintf("%s %s", s.Scaling, s.Element)
	if f.Block.Cols > 0 && f.Block.Cols <= 32 && s.K%f.Block.Cols != 0 {
		return nil, fmt.Errorf("gemm: %s is %d×%d, whose lines do not end with a block of %d", name, s.Lines, s.K, f.Block.Cols)
	}
	if s.Global != nil && !f.Global {
		return nil, fmt.Errorf("gemm: %s is %s and takes no global scale", name, s.Scaling)
	}
	if s.Swizzling != NoSwizzle && (s.Swizzling != Swizzle32x4x4 || f.Scale == format.F32) {
		return nil, fmt.Errorf("gemm: %s is %s, whose scales cannot have swizzling %d", name, s.Scaling, s.Swizzling)
	}
	line, ok := s.Element.StoredBytes(s.K)
	fits := s.Lines == 0 || s.K <= 2*len(s.Codes) // codes are at least half a byte, and more of them overflow
	if beyond, n := bits.Mul(uint(s.Lines), uint(line)); !ok || !fits || beyond != 0 || n != uint(len(s.Codes)) {
		return nil, fmt.Errorf("gemm: %s is %s %d×%d of %s and has %d bytes of codes, not %d for each line", name, s.Scaling, s.Lines, s.K, s.Element, len(s.Codes), line)
	}
	t := &quant.Tensor{Format: f, Shape: []int{s.Lines, s.K}, Codes: s.Codes, Scales: s.Scales, Scales32: s.Scales32, Global: 1}
	if s.Global != nil {
		t.Global = *s.Global
	}
	if stored := f.StoredCols(s.K); stored != s.K { // elements of one byte
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
		size = layout.SwizzledSize(rows, cols)
	}
	has, others := len(s.Scales), len(s.Scales32)
	if f.Scale == format.F32 {
		has, others = others, has
	}
	if has != size || others > 0 {
		return nil, fmt.Errorf("gemm: %s is %s %d×%d and takes %d scales of %s: it has %d of 8 bits and %d of FP32", name, s.Scaling, s.Lines, s.K, size, f.Scale, len(s.Scales), len(s.Scales32))
	}
	switch {
	case size == 0: // of any number of lines
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
