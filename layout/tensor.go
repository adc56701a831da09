package layout

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// QuantizeSwizzled quantizes x in the given direction and returns the tensor
// and, beside it, its scales in the Swizzled order: each line of scales is put
// in its place while the quantizer still holds it, without a pass over the
// scales. They are those of Scales(t, Swizzled). It fails where the quantizer
// does, and on formats whose scales are not of one byte.
func QuantizeSwizzled(q quant.Quantizer, x tensor.Dense, d quant.Direction, with quant.With) (*quant.Tensor, []byte, error) {
	if err := q.Validate(); err != nil {
		return nil, nil, err
	}
	if err := checkScales(q.Format); err != nil {
		return nil, nil, err
	}
	if err := x.Validate(); err != nil {
		return nil, nil, err
	}
	lines, width, quantize := x.Rows, x.Cols, q.Rowwise
	if d == quant.Columnwise {
		lines, width, quantize = x.Cols, x.Rows, q.Columnwise
	}
	_, blocks := q.Format.ScaleShape(lines, width)
	scales := make([]byte, Swizzled.Size(lines, blocks))
	also := with.Scales
	with.Scales = func(line int, codes []byte) {
		Swizzled.putLine(scales, line, codes, lines)
		if also != nil {
			also(line, codes)
		}
	}
	t, err := quantize(x, with)
	if err != nil {
		return nil, nil, err
	}
	return t, scales, nil
}

// Scales returns the one-byte scales of t in order o, for every line of t: a
// scale whose block spans several lines is there once for each, as hardware
// reads it. It fails on scales of other widths, and on a tensor that is not valid.
func Scales(t *quant.Tensor, o Order) ([]byte, error) {
	if err := checkTensor(t); err != nil {
		return nil, err
	}
	_, blocks := t.ScaleShape()
	dst := make([]byte, o.Size(t.Lines(), blocks))
	for i := range t.Lines() {
		first := scaleRow(t, i) * blocks
		o.putLine(dst, i, t.Scales[first:first+blocks], t.Lines())
	}
	return dst, nil
}

// SetScales gives t the scales that src holds in order o: the inverse of Scales.
// It fails, and changes nothing, where t is not valid, and where src has another length
// or holds different scales for lines of one block.
func SetScales(t *quant.Tensor, o Order, src []byte) error {
	if err := checkTensor(t); err != nil {
		return err
	}
	lines := t.Lines()
	rows, blocks := t.ScaleShape()
	if want := o.Size(lines, blocks); len(src) != want {
		return fmt.Errorf("%d bytes are not the %d×%d scales of a %s tensor in %s order: want %d", len(src), lines, blocks, t.Format, o, want)
	}
	scales := make([]byte, rows*blocks)
	for i := range lines {
		row := scaleRow(t, i)
		firstOfBlock := i == 0 || scaleRow(t, i-1) != row
		for j := range blocks {
			s := src[o.Offset(i, j, lines, blocks)]
			if at := row*blocks + j; firstOfBlock {
				scales[at] = s
			} else if scales[at] != s {
				return fmt.Errorf("scale of line %d, block %d is %#02x, and %#02x on the line before it: %s has one for both", i, j, s, scales[at], t.Format)
			}
		}
	}
	copy(t.Scales, scales)
	return nil
}

// putLine puts the scales of a line in their places.
func (o Order) putLine(dst []byte, line int, scales []byte, lines int) {
	for j, s := range scales {
		dst[o.Offset(line, j, lines, len(scales))] = s
	}
}

// scaleRow returns the row of t's scales that serves a line.
func scaleRow(t *quant.Tensor, line int) int {
	if t.Format.Block.Rows == 0 {
		return 0
	}
	return line / t.Format.Block.Rows
}

// checkTensor reports what keeps t from having scales to reorder.
func checkTensor(t *quant.Tensor) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return checkScales(t.Format)
}

func checkScales(f quant.Format) error {
	if !f.ByteScales() {
		return fmt.Errorf("%s has no scales of one byte to reorder", f)
	}
	return nil
}

// Untransposed returns the codes of a columnwise tensor in the order of its
// source, rows × columns without padding: how Transformer Engine keeps the
// columnwise copy of an MXFP8 tensor. Its scales beside them are Scales(t,
// CompactColumnwise). (Its columnwise NVFP4 copies are transposed, as t is: they
// take t.Codes and Compact.) It fails on a tensor that is rowwise or not valid, on formats
// without scales, and where a row of codes does not fill whole bytes.
func Untransposed(t *quant.Tensor) ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if t.Direction != quant.Columnwise {
		return nil, fmt.Errorf("the codes of a %s %s tensor are in the order of its source already", t.Direction, t.Format)
	}
	rowBytes, err := untransposedRow(t)
	if err != nil {
		return nil, err
	}
	element := t.Format.Element
	line := make([]byte, t.Format.StoredCols(t.Rows()))
	codes := make([]byte, t.Rows()*t.Cols()) // one per byte
	for l := range t.Cols() {
		element.Split(line, t.Codes[l*t.LineBytes():])
		for i, c := range line[:t.Rows()] {
			codes[i*t.Cols()+l] = c
		}
	}
	dst := make([]byte, t.Rows()*rowBytes)
	element.Join(dst, codes)
	return dst, nil
}

// FromUntransposed returns a columnwise tensor with the codes that src holds in
// the order of its source, rows × cols, and zero scales, for SetScales to set:
// the inverse of Untransposed. It fails where src has another length.
func FromUntransposed(f quant.Format, rows, cols int, src []byte) (*quant.Tensor, error) {
	t, err := quant.NewTensor(f, cols, rows) // the lines of the result as rows
	if err != nil {
		return nil, err
	}
	t.Direction, t.Shape = quant.Columnwise, []int{rows, cols}
	rowBytes, err := untransposedRow(t)
	if err != nil {
		return nil, err
	}
	if len(src) != rows*rowBytes {
		return nil, fmt.Errorf("%d bytes are not %d×%d codes of %s: want %d", len(src), rows, cols, f, rows*rowBytes)
	}
	codes := make([]byte, rows*cols)
	f.Element.Split(codes, src)
	line := make([]byte, f.StoredCols(rows))
	for l := range cols {
		for i := range rows {
			line[i] = codes[i*cols+l]
		}
		f.Element.Join(t.Codes[l*t.LineBytes():], line)
	}
	return t, nil
}

// untransposedRow returns the bytes of a row of t's source in codes.
func untransposedRow(t *quant.Tensor) (int, error) {
	if !t.Format.Scaled() {
		return 0, fmt.Errorf("%s has no blocks: quantize it rowwise for the order of its source", t.Format)
	}
	n, whole := t.Format.Element.StoredBytes(t.Cols())
	if !whole {
		return 0, fmt.Errorf("rows of %d %s codes do not fill whole bytes: they stay transposed", t.Cols(), t.Format.Element)
	}
	return n, nil
}
