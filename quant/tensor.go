package quant

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/tensor"
)

// Direction says along which dimension of the source blocks lie.
type Direction uint8

const (
	Rowwise    Direction = iota // along rows; stored rows are the rows of the source
	Columnwise                  // down columns; stored rows are the columns of the source
)

// A Tensor is a quantized tensor: a matrix of codes stored row by row, and the scales
// of its blocks. The rows of a Shape of more than two dimensions are the product of all but the last.
//
//	Codes     stored rows × padded columns, joined (format.Scalar.Join), without gaps
//	Scales    E8M0 or E4M3 codes, ScaleShape in row-major order
//	Scales32  FP32 scales, and BF16 scales as float32, instead of Scales
type Tensor struct {
	Format    Format
	Direction Direction
	Shape     []int // of the source; the last is its columns
	Codes     []byte
	Scales    []byte
	Scales32  []float32
	Global    float32 // decode scale of the whole tensor; formats without a global scale ignore it
	Amax      float32 // largest magnitude of the source, or With.Amax
}

// NewTensor returns a rowwise tensor of rows × cols elements, with zero codes and scales, to
// be filled from a file.
func NewTensor(f Format, rows, cols int) (*Tensor, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if _, err := (&Tensor{Format: f, Shape: []int{rows, cols}}).codeBytes(); err != nil {
		return nil, err
	}
	return newTensor(f, Rowwise, rows, cols), nil
}

// Like returns a tensor with the format, direction, columns, Global and Amax of t, another number
// of rows, and zero codes. Its block scales are zero; one scale for the whole tensor is that of t.
// Ranks receive Planes into it.
func (t *Tensor) Like(rows int) *Tensor {
	n := newTensor(t.Format, t.Direction, rows, t.Cols())
	n.Global, n.Amax = t.Global, t.Amax
	if t.Format.PerTensor() {
		copy(n.Scales32, t.Scales32)
		copy(n.Scales, t.Scales)
	}
	return n
}

// Planes returns the memory of a part of a tensor that ranks exchange: codes and block scales. It
// does not contain a scale of the whole tensor, which all parts share.
func (t *Tensor) Planes() [][]byte {
	if !t.Format.Scaled() || t.Format.PerTensor() {
		return [][]byte{t.Codes}
	}
	if t.Scales32 != nil {
		return [][]byte{t.Codes, memory.Bytes(t.Scales32)}
	}
	return [][]byte{t.Codes, t.Scales}
}

// largeCodes is the number of bytes from which caches do not hold codes between products. Those of
// converted tiles are fewer: huge pages would only round up the memory of conversions.
const largeCodes = 32 << 20

func newTensor(f Format, d Direction, rows, cols int) *Tensor {
	t := &Tensor{Format: f, Direction: d, Shape: []int{rows, cols}, Global: 1}
	t.Codes = make([]byte, t.StoredRows()*t.RowBytes())
	if len(t.Codes) >= largeCodes {
		memory.Huge(t.Codes)
	}
	n := t.scaleRows() * t.scaleCols()
	switch {
	case f.ByteScales():
		t.Scales = make([]byte, n)
	case f.Scaled():
		t.Scales32 = make([]float32, n)
	}
	return t
}

// Validate returns an error if the format, direction or shape of t is not valid, or if the
// number or kind of its codes or scales is not that of the shape and format.
func (t *Tensor) Validate() error {
	if err := t.Format.Validate(); err != nil {
		return err
	}
	if t.Direction > Columnwise {
		return fmt.Errorf("%s tensor: got direction %d, want rowwise or columnwise", t.Format, uint8(t.Direction))
	}
	want, err := t.codeBytes()
	if err != nil {
		return err
	}
	if len(t.Codes) != want {
		return fmt.Errorf("%s %s tensor of shape %v: got %d bytes of codes, want %d", t.Direction, t.Format, t.Shape, len(t.Codes), want)
	}
	has, kind, others, other := len(t.Scales), "scales", t.Scales32 != nil, "FP32 scales"
	if t.Format.Scaled() && !t.Format.ByteScales() {
		has, kind, others, other = len(t.Scales32), "FP32 scales", len(t.Scales) > 0, "scales of one byte"
	}
	if rows, cols := t.ScaleShape(); has != rows*cols {
		return fmt.Errorf("%s %s tensor of shape %v: got %d %s, want %d×%d", t.Direction, t.Format, t.Shape, has, kind, rows, cols)
	}
	if others {
		return fmt.Errorf("%s %s tensor of shape %v: got %s, want none in this format", t.Direction, t.Format, t.Shape, other)
	}
	return nil
}

// codeBytes returns the bytes of the codes of the shape, and an error if the bytes of codes or scales
// overflow an int.
func (t *Tensor) codeBytes() (int, error) {
	if len(t.Shape) == 0 {
		return 0, fmt.Errorf("%s tensor: got no shape, want at least one dimension", t.Format)
	}
	elements, fits := 1, true
	for _, d := range t.Shape {
		beyond, n := bits.Mul(uint(elements), uint(max(d, 1)))
		fits = fits && 0 <= d && beyond == 0 && n <= math.MaxInt/8 // codes and scales take less than eight bytes for each
		elements = int(n)
	}
	if fits { // with the zeros that fill up blocks
		stored := t.paddedCols()
		beyond, n := bits.Mul(uint(t.StoredRows()), uint(t.RowBytes()))
		if t.StoredCols() <= stored && stored <= math.MaxInt/32 && beyond == 0 && n <= math.MaxInt {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%s tensor: got shape %v, want no negative dimension, and sizes that do not overflow", t.Format, t.Shape)
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

// StoredRows returns the number of stored rows: rows, or columns of a columnwise tensor.
func (t *Tensor) StoredRows() int {
	if t.Direction == Columnwise {
		return t.Cols()
	}
	return t.Rows()
}

// StoredCols returns the elements of a stored row, without the zeros that fill up the last
// block.
func (t *Tensor) StoredCols() int {
	if t.Direction == Columnwise {
		return t.Rows()
	}
	return t.Cols()
}

// RowBytes returns the bytes of a stored row.
func (t *Tensor) RowBytes() int { return t.paddedCols() * t.Format.Element.StoredBits() / 8 }

// ScaleShape returns the rows and columns of the stored scales.
func (t *Tensor) ScaleShape() (rows, cols int) { return t.scaleRows(), t.scaleCols() }

func (t *Tensor) paddedCols() int { return t.Format.PaddedCols(t.StoredCols()) }

func (t *Tensor) scaleRows() int {
	r, _ := t.Format.ScaleShape(t.StoredRows(), t.StoredCols())
	return r
}

func (t *Tensor) scaleCols() int {
	_, c := t.Format.ScaleShape(t.StoredRows(), t.StoredCols())
	return c
}

// row returns the bytes of stored row i.
func (t *Tensor) row(i int) []byte {
	n := t.RowBytes()
	return t.Codes[i*n : (i+1)*n : (i+1)*n]
}

// rowScales returns the one-byte scales of stored row i.
func (t *Tensor) rowScales(i int) []byte {
	n := t.scaleCols()
	first := blockIndex(i, t.Format.Block.Rows) * n
	return t.Scales[first : first+n : first+n]
}

// RowScales sets dst to the decode scales of stored row i, one for each block: block scale times
// global scale. It panics unless 0 ≤ i < StoredRows and dst has an element for each block. If the
// format has no scales, dst may have any length, and all elements become 1.
func (t *Tensor) RowScales(dst []float32, i int) {
	if t.Format.Scaled() {
		if len(dst) != t.scaleCols() || i < 0 || t.StoredRows() <= i {
			panic(fmt.Sprintf("quant: scales of row %d of %d: got a buffer for %d, want %d", i, t.StoredRows(), len(dst), t.scaleCols()))
		}
		t.fillScales(dst, i, t.extent())
		return
	}
	for i := range dst {
		dst[i] = 1
	}
}

// Scale returns the decode scale of element j of stored row i: block scale times global scale, or 1
// if the format has no scales.
func (t *Tensor) Scale(i, j int) float32 {
	if !t.Format.Scaled() {
		return 1
	}
	block := blockIndex(i, t.Format.Block.Rows)*t.scaleCols() + blockIndex(j, t.Format.Block.Cols)
	if t.Scales32 != nil {
		return t.Scales32[block]
	}
	return float32(t.Format.Scale.Decode(uint32(t.Scales[block])) * t.global())
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

// ScaleBytes returns the scales as they are stored in files: one byte each, or those of a little-endian
// BF16 or float32.
func (t *Tensor) ScaleBytes() []byte {
	if t.Scales32 == nil {
		return t.Scales
	}
	b := make([]byte, t.Format.Scale.StoredBits()/8*len(t.Scales32))
	if err := tensor.ToBytes(b, t.Scales32, t.Format.Scale); err != nil {
		panic(err) // Validate checked the format
	}
	return b
}
