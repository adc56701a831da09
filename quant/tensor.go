package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
)

// Direction says along which dimension of the source blocks lie.
type Direction uint8

const (
	Rowwise    Direction = iota // along rows; lines are the rows of the source
	Columnwise                  // down columns; lines are the columns of the source
)

// String returns "rowwise" or "columnwise".
func (d Direction) String() string {
	if names := [...]string{"rowwise", "columnwise"}; int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("direction %d", d)
}

// A Tensor is a quantized tensor: a matrix of codes stored line by line, and the
// scales of its blocks. Leading dimensions beyond two are kept in Shape and
// folded into the rows.
//
//	Codes     lines × stored width, joined (format.Scalar.Join), lines without gaps
//	Scales    scale rows × scale columns of E8M0 or E4M3 codes
//	Scales32  the same of FP32 scales; only one of the two is set
type Tensor struct {
	Format    Format
	Direction Direction
	Shape     []int // of the source; the last is its columns
	Codes     []byte
	Scales    []byte
	Scales32  []float32
	Global    float32 // decode scale of the whole tensor; 1, and not looked at, where the format has none
	Amax      float32 // largest magnitude of the source, or what With.Amax gave as that
}

// NewTensor returns a rowwise tensor of zero codes and scales, to be filled with
// what a file holds: rows × cols elements of the format.
func NewTensor(f Format, rows, cols int) (*Tensor, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if _, err := (&Tensor{Format: f, Shape: []int{rows, cols}}).codeBytes(); err != nil {
		return nil, err
	}
	return newTensor(f, Rowwise, rows, cols), nil
}

func newTensor(f Format, d Direction, rows, cols int) *Tensor {
	t := &Tensor{Format: f, Direction: d, Shape: []int{rows, cols}, Global: 1}
	t.Codes = make([]byte, t.Lines()*t.LineBytes())
	n := t.scaleRows() * t.scaleCols()
	switch f.Scale {
	case nil:
	case format.F32:
		t.Scales32 = make([]float32, n)
	default:
		t.Scales = make([]byte, n)
	}
	return t
}

// Validate reports what keeps t from being a tensor: a format, direction or shape that
// none has, and codes or scales that are not as many as the shape says, or of another kind
// than the format's.
func (t *Tensor) Validate() error {
	if err := t.Format.Validate(); err != nil {
		return err
	}
	if t.Direction > Columnwise {
		return fmt.Errorf("a %s tensor has the unknown direction %d", t.Format, t.Direction)
	}
	want, err := t.codeBytes()
	if err != nil {
		return err
	}
	if len(t.Codes) != want {
		return fmt.Errorf("a %s %s tensor of shape %v has %d bytes of codes, not %d", t.Direction, t.Format, t.Shape, len(t.Codes), want)
	}
	has, kind, others, other := len(t.Scales), "scales", t.Scales32 != nil, "FP32 scales"
	if t.Format.Scale == format.F32 {
		has, kind, others, other = len(t.Scales32), "FP32 scales", len(t.Scales) > 0, "scales of one byte"
	}
	if rows, cols := t.ScaleShape(); has != rows*cols {
		return fmt.Errorf("a %s %s tensor of shape %v has %d %s, not %d×%d", t.Direction, t.Format, t.Shape, has, kind, rows, cols)
	}
	if others {
		return fmt.Errorf("a %s %s tensor of shape %v has %s, too, which belong to other formats", t.Direction, t.Format, t.Shape, other)
	}
	return nil
}

// codeBytes returns how many bytes of codes the shape takes. It fails where they, or the
// scales, cannot be counted.
func (t *Tensor) codeBytes() (int, error) {
	if len(t.Shape) == 0 {
		return 0, fmt.Errorf("a %s tensor has no shape", t.Format)
	}
	elements, fits := 1, true
	for _, d := range t.Shape {
		beyond, n := bits.Mul(uint(elements), uint(max(d, 1)))
		fits = fits && 0 <= d && beyond == 0 && n <= math.MaxInt/8 // eight bytes for each are more than codes and scales take
		elements = int(n)
	}
	if fits { // and what fills up blocks, too
		stored := t.storedWidth()
		beyond, n := bits.Mul(uint(t.Lines()), uint(t.LineBytes()))
		if t.Width() <= stored && stored <= math.MaxInt/32 && beyond == 0 && n <= math.MaxInt {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("a %s tensor cannot have the shape %v", t.Format, t.Shape)
}

// Rows returns the rows of the source: the product of all dimensions but the last.
func (t *Tensor) Rows() int {
	n := 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		n *= d
	}
	return n
}

// Cols returns the columns of the source.
func (t *Tensor) Cols() int { return t.Shape[len(t.Shape)-1] }

// Lines returns the number of stored lines: rows, or columns of a columnwise tensor.
func (t *Tensor) Lines() int {
	if t.Direction == Columnwise {
		return t.Cols()
	}
	return t.Rows()
}

// Width returns the elements of a line, without the zeros of the last block.
func (t *Tensor) Width() int {
	if t.Direction == Columnwise {
		return t.Rows()
	}
	return t.Cols()
}

// LineBytes returns the bytes of one stored line.
func (t *Tensor) LineBytes() int { return t.storedWidth() * t.Format.Element.StoredBits() / 8 }

// ScaleShape returns the rows and columns of the stored scales.
func (t *Tensor) ScaleShape() (rows, cols int) { return t.scaleRows(), t.scaleCols() }

func (t *Tensor) storedWidth() int { return t.Format.StoredCols(t.Width()) }

func (t *Tensor) scaleRows() int { r, _ := t.Format.ScaleShape(t.Lines(), t.Width()); return r }

func (t *Tensor) scaleCols() int { _, c := t.Format.ScaleShape(t.Lines(), t.Width()); return c }

// line returns the stored bytes of line l.
func (t *Tensor) line(l int) []byte {
	n := t.LineBytes()
	return t.Codes[l*n : (l+1)*n : (l+1)*n]
}

// lineScales returns the one-byte scales of line l.
func (t *Tensor) lineScales(l int) []byte {
	n := t.scaleCols()
	i := blockIndex(l, t.Format.Block.Rows) * n
	return t.Scales[i : i+n : i+n]
}

// LineScales sets dst, as long as a line has blocks, to the decode scales of
// line l: block scales times global scale. Without scales in the format all of dst
// becomes 1; else it panics where dst has another length, or there is no such line.
func (t *Tensor) LineScales(dst []float32, l int) {
	if t.Format.Scaled() {
		if len(dst) != t.scaleCols() || l < 0 || t.Lines() <= l {
			panic(fmt.Sprintf("quant: the %d scales of line %d of %d do not go to %d", t.scaleCols(), l, t.Lines(), len(dst)))
		}
		t.fillScales(dst, l, t.extent())
		return
	}
	for i := range dst {
		dst[i] = 1
	}
}

// scaleMemory returns the memory of n scales from the first on.
func (t *Tensor) scaleMemory(first, n int) []byte {
	if t.Scales32 == nil {
		return t.Scales[first : first+n]
	}
	return memory.Bytes(t.Scales32[first : first+n])
}

// Scale returns the decode scale of the element at position c of line l: block
// scale times global scale, 1 where the format has no scale.
func (t *Tensor) Scale(l, c int) float32 {
	if !t.Format.Scaled() {
		return 1
	}
	i := blockIndex(l, t.Format.Block.Rows)*t.scaleCols() + blockIndex(c, t.Format.Block.Cols)
	if t.Scales32 != nil {
		return t.Scales32[i]
	}
	return float32(t.Format.Scale.Decode(uint32(t.Scales[i])) * t.global())
}

// global returns the factor of all scales.
func (t *Tensor) global() float32 {
	if t.Format.Global {
		return t.Global
	}
	return 1
}

func blockIndex(i, extent int) int {
	if extent == 0 {
		return 0
	}
	return i / extent
}

// ScaleBytes returns the scales as they are stored in files: one byte each, or
// four of a little-endian float32.
func (t *Tensor) ScaleBytes() []byte {
	if t.Scales32 == nil {
		return t.Scales
	}
	b := make([]byte, 4*len(t.Scales32))
	for i, s := range t.Scales32 {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(s))
	}
	return b
}
