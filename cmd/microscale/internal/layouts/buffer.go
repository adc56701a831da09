// Package layouts recognizes, checks and converts the layouts of buffers from other software: scales
// alone, or codes and scales together.
package layouts

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
)

// A Buffer describes bytes of a quantized matrix that came from elsewhere: its scales alone,
// or codes and scales together.
type Buffer struct {
	Format     quant.Format
	Rows, Cols int // of the stored matrix: columns of a columnwise copy are its rows
}

// A Layout is a named arrangement of a buffer: a layout.Order of its scales, a ggml.Struct of its
// codes and scales, or Separate.
type Layout struct {
	Name    string
	Aliases []string
	Doc     string

	order  *layout.Order
	blocks *ggml.Struct // nil for scales, and for Separate
}

// Separate is all codes, joined as in quant.Tensor, then all scales in row-major order.
var Separate = Layout{Name: "separate", Doc: "all codes, then all scales in row-major order"}

// Layouts returns the layouts of scales, then those of codes with scales.
func Layouts() []Layout {
	var list []Layout
	for _, o := range layout.Orders() {
		list = append(list, Layout{Name: o.String(), Aliases: o.Aliases(), Doc: o.Doc(), order: &o})
	}
	list = append(list, Separate)
	for _, s := range ggml.Structs() {
		doc := fmt.Sprintf("structs of %d scales and %d codes: ggml and GGUF files", s.Blocks, s.Width())
		if s.Blocks == 1 {
			doc = fmt.Sprintf("structs of a scale and %d codes: ggml and GGUF files", s.Width())
		}
		list = append(list, Layout{Name: s.Name, Doc: doc, blocks: &s})
	}
	return list
}

// Lookup returns the layout with the given name or alias. Case is ignored.
func Lookup(name string) (Layout, error) {
	var names []string
	for _, l := range Layouts() {
		for _, n := range append([]string{l.Name}, l.Aliases...) {
			if strings.EqualFold(n, name) {
				return l, nil
			}
		}
		names = append(names, l.Name)
	}
	return Layout{}, naming.Unknown("layout", name, names)
}

// String returns the layout's name.
func (l Layout) String() string { return l.Name }

// Scales reports whether the layout is one of scales alone.
func (l Layout) Scales() bool { return l.order != nil }

// Size returns the bytes of b in layout l. It returns an error if the format or the shape of b
// has no such layout.
func (b Buffer) Size(l Layout) (int, error) {
	if err := b.validate(); err != nil {
		return 0, err
	}
	if l.Scales() {
		rows, blocks := b.scaleShape()
		return l.order.Size(rows, blocks) * b.scaleBytes(l), nil
	}
	if err := b.fits(l); err != nil {
		return 0, err
	}
	codes, scales := b.parts(l)
	return codes + scales, nil
}

// validate returns an error unless b has scales and a shape.
func (b Buffer) validate() error {
	if err := b.Format.Validate(); err != nil {
		return err
	}
	if !b.Format.Scaled() {
		return fmt.Errorf("layout: %s has no scales: use a block format such as mxfp8", b.Format)
	}
	if b.Rows < 1 || b.Cols < 1 {
		return fmt.Errorf("layout: got %d×%d, want at least one row and one column", b.Rows, b.Cols)
	}
	// Padding adds fewer rows and blocks than these.
	const rows, blocks, bytes = 1 << 10, 1 << 4, 8
	if b.Cols <= math.MaxInt/4 && b.Rows <= math.MaxInt/4 {
		if beyond, n := bits.Mul(uint(b.Rows+rows), uint(b.Cols+blocks*max(b.Format.Block.Cols, 1))); beyond == 0 && n <= math.MaxInt/bytes {
			return nil
		}
	}
	return fmt.Errorf("layout: got %d×%d, want a shape whose bytes can be counted", b.Rows, b.Cols)
}

// fits returns an error unless structs of l hold tensors of b's format and width.
func (b Buffer) fits(l Layout) error {
	if l.blocks == nil {
		return nil
	}
	s := *l.blocks
	if want, ok := structFormats[s.Name]; !ok || want != b.Format.Name {
		return fmt.Errorf("layout: %s does not hold %s: use it for %s", s, b.Format, structFormats[s.Name])
	}
	if b.Cols%s.Width() != 0 {
		return fmt.Errorf("layout: rows of %d elements do not fill structs of %s: want a multiple of %d", b.Cols, s, s.Width())
	}
	return nil
}

// structFormats maps each struct to the format that it holds.
var structFormats = map[string]string{ggml.BlockMXFP4.Name: quant.MXFP4.Name, ggml.BlockNVFP4.Name: quant.NVFP4.Name,
	ggml.BlockQ80.Name: quant.Q8_0.Name}

// scaleShape returns the rows and columns of scales. One-byte scales of blocks that span rows
// are repeated for each row where hardware reads them, so a buffer has those of all rows.
func (b Buffer) scaleShape() (rows, blocks int) {
	rows, blocks = b.Format.ScaleShape(b.Rows, b.Cols)
	if b.Format.ByteScales() {
		rows = b.Rows
	}
	return rows, blocks
}

// scaleType returns the format of a scale in layout l. ggml stores those of Q8_0 as FP16.
func (b Buffer) scaleType(l Layout) *format.Scalar {
	if !l.Scales() && b.Format.Name == quant.Q8_0.Name {
		return format.FP16
	}
	return b.Format.Scale
}

// scaleBytes returns the width of a scale in layout l.
func (b Buffer) scaleBytes(l Layout) int { return b.scaleType(l).StoredBits() / 8 }

// parts returns the bytes of codes and scales of a layout that has both.
func (b Buffer) parts(l Layout) (codes, scales int) {
	rows, blocks := b.Format.ScaleShape(b.Rows, b.Cols)
	return b.Rows * b.Format.PaddedCols(b.Cols) * b.Format.Element.StoredBits() / 8, rows * blocks * b.scaleBytes(l)
}

// Convert returns the bytes of src, which is b in layout from, in layout to. It returns the errors
// of Check, and an error for a layout of scales beside one of codes.
func (b Buffer) Convert(src []byte, to, from Layout) ([]byte, error) {
	if err := b.Check(src, from); err != nil {
		return nil, err
	}
	if from.Scales() != to.Scales() {
		return nil, fmt.Errorf("layout: %s and %s do not hold the same: one is of scales alone", from, to)
	}
	size, err := b.Size(to)
	if err != nil {
		return nil, err
	}
	dst := make([]byte, size)
	if to.Scales() {
		rows, blocks := b.scaleShape()
		layout.Reorder(dst, *to.order, src, *from.order, rows, blocks)
		return dst, nil
	}
	codes, scales := b.separate(src, from)
	if to.blocks == nil {
		copy(dst[copy(dst, codes):], scales)
	} else {
		to.blocks.Interleave(dst, codes, scales)
	}
	return dst, nil
}

// separate returns the codes and the scales of src, which is in layout l of both.
func (b Buffer) separate(src []byte, l Layout) (codes, scales []byte) {
	n, _ := b.parts(l)
	if l.blocks == nil {
		return src[:n], src[n:]
	}
	both := make([]byte, len(src))
	l.blocks.Deinterleave(both[:n], both[n:], src)
	return both[:n], both[n:]
}

// scales returns the scales of src, which is in layout l, in row-major order.
func (b Buffer) scales(src []byte, l Layout) []byte {
	if !l.Scales() {
		_, scales := b.separate(src, l)
		return scales
	}
	rows, blocks := b.scaleShape()
	scales := make([]byte, rows*blocks*b.scaleBytes(l))
	layout.Reorder(scales, layout.RowMajor, src, *l.order, rows, blocks)
	return scales
}

// Check returns an error if src cannot be b in layout l, because its size differs or its padding is
// not zero, and if a scale is NaN.
func (b Buffer) Check(src []byte, l Layout) error {
	if err := b.arranged(src, l); err != nil {
		return err
	}
	_, blocks := b.Format.ScaleShape(b.Rows, b.Cols)
	for i, v := range b.decoded(b.scales(src, l), l) {
		if v != v {
			return fmt.Errorf("layout: the scale of row %d, block %d, of %s is NaN: quantize the tensor again", i/blocks, i%blocks, l)
		}
	}
	return nil
}

// decoded returns the values of scales in row-major order that come from layout l.
func (b Buffer) decoded(scales []byte, l Layout) []float32 {
	s, width := b.scaleType(l), b.scaleBytes(l)
	values := make([]float32, len(scales)/width)
	for i := range values {
		var code uint32
		for k := range width {
			code |= uint32(scales[i*width+k]) << (8 * k)
		}
		values[i] = s.Decode(code)
	}
	return values
}

// arranged returns an error if src has another size than b in layout l, or padding that is not zero.
func (b Buffer) arranged(src []byte, l Layout) error {
	size, err := b.Size(l)
	if err != nil {
		return err
	}
	if len(src) != size {
		return fmt.Errorf("layout: got %d bytes, want %d for %d×%d %s in %s", len(src), size, b.Rows, b.Cols, b.Format, l)
	}
	if !l.Scales() {
		return nil
	}
	rows, blocks := b.scaleShape()
	paddedRows, paddedBlocks := l.order.Padded(rows, blocks)
	width := b.scaleBytes(l)
	for i := range paddedRows {
		for j := range paddedBlocks {
			if i < rows && j < blocks {
				continue
			}
			at := l.order.Offset(i, j, rows, blocks) * width
			for k, v := range src[at : at+width] {
				if v != 0 {
					return fmt.Errorf("layout: padding of %s at byte %d is %#02x, want 0", l, at+k, v)
				}
			}
		}
	}
	return nil
}
