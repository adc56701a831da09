package layout

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// QuantizeSwizzled quantizes x in the given direction. It returns the tensor and its scales in
// the Swizzled order, equal to Scales(t, Swizzled). It writes each row of scales while the
// quantizer holds it, without another pass. It returns the errors of the quantizer, and an
// error for formats without one-byte scales.
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
	rows, width, quantize := x.Rows, x.Cols, q.Rowwise
	if d == quant.Columnwise {
		rows, width, quantize = x.Cols, x.Rows, q.Columnwise
	}
	_, blocks := q.Format.ScaleShape(rows, width)
	scales := make([]byte, Swizzled.Size(rows, blocks))
	also := with.Scales
	with.Scales = func(row int, codes []byte) {
		Swizzled.putRow(scales, row, codes, rows)
		if also != nil {
			also(row, codes)
		}
	}
	t, err := quantize(x, with)
	if err != nil {
		return nil, nil, err
	}
	return t, scales, nil
}

// Scales returns the one-byte scales of t in order o, for every stored row of t: a scale whose
// block spans several rows is repeated for each, as hardware reads it. It returns an error for
// scales of other widths and for an invalid tensor, and panics for an unknown order.
func (o Order) Scales(t *quant.Tensor) ([]byte, error) {
	if err := checkTensor(t); err != nil {
		return nil, err
	}
	_, blocks := t.ScaleShape()
	dst := make([]byte, o.Size(t.StoredRows(), blocks))
	for i := range t.StoredRows() {
		first := scaleRowOf(t, i) * blocks
		o.putRow(dst, i, t.Scales[first:first+blocks], t.StoredRows())
	}
	return dst, nil
}

// SetScales sets the scales of t to src, which is in order o. It is the inverse of Scales. It
// returns an error if t is invalid, if src has the wrong length, or if src holds different
// scales for rows of one block. On error, t is unchanged. SetScales panics for an unknown order.
func (o Order) SetScales(t *quant.Tensor, src []byte) error {
	if err := checkTensor(t); err != nil {
		return err
	}
	rows := t.StoredRows()
	scaleRows, blocks := t.ScaleShape()
	if want := o.Size(rows, blocks); len(src) != want {
		return fmt.Errorf("scales of a %s tensor: got %d bytes, want %d for %d×%d scales in %s order", t.Format, len(src), want, rows, blocks, o)
	}
	scales := make([]byte, scaleRows*blocks)
	for i := range rows {
		scaleRow := scaleRowOf(t, i)
		firstOfBlock := i == 0 || scaleRowOf(t, i-1) != scaleRow
		for j := range blocks {
			s := src[o.Offset(i, j, rows, blocks)]
			if at := scaleRow*blocks + j; firstOfBlock {
				scales[at] = s
			} else if scales[at] != s {
				return fmt.Errorf("scale of row %d, block %d: got %#02x, want %#02x as in the row before: they share a block of %s", i, j, s,
					scales[at], t.Format)
			}
		}
	}
	copy(t.Scales, scales)
	return nil
}

// putRow writes the scales of a row to their offsets in dst.
func (o Order) putRow(dst []byte, row int, scales []byte, rows int) {
	for j, s := range scales {
		dst[o.Offset(row, j, rows, len(scales))] = s
	}
}

// scaleRowOf returns the row of t's scales that applies to a stored row.
func scaleRowOf(t *quant.Tensor, row int) int {
	if t.Format.Block.Rows == 0 {
		return 0
	}
	return row / t.Format.Block.Rows
}

// checkTensor returns an error unless t is valid and has scales to reorder.
func checkTensor(t *quant.Tensor) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return checkScales(t.Format)
}

func checkScales(f quant.Format) error {
	if !f.ByteScales() {
		return fmt.Errorf("%s has no one-byte scales", f)
	}
	return nil
}
