package gemm

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A NaNScale error reports a scale that is NaN, from a source with NaN or from a
// damaged file. The product is complete, with NaN wherever that scale is a factor. An
// infinite scale is no error: large values have one.
type NaNScale struct {
	Operand string // a or b
	Row     int    // the first stored row with such a scale
	Block   int    // the first such block of the row; -1: the global scale is NaN

	a, b *quant.Tensor
}

func (e *NaNScale) Error() string {
	if e.a == nil || e.b == nil {
		return fmt.Sprintf("gemm: a scale of %s is NaN", e.Operand)
	}
	t := e.a
	if e.Operand == "b" {
		t = e.b
	}
	which := "the global scale"
	if e.Block >= 0 {
		from, to := 0, t.StoredCols()
		if n := t.Format.Block.Cols; n > 0 {
			from, to = e.Block*n, min((e.Block+1)*n, to)
		}
		which = fmt.Sprintf("row %d: the scale of block %d (elements %d to %d)", e.Row, e.Block, from, to-1)
	}
	return fmt.Sprintf("gemm: %s of %s is NaN: a is %s, b is %s", which, e.Operand, describe(e.a), describe(e.b))
}

// nanScale returns the error for the part rows × cols of the product, which is c. A
// NaN scale in row i of A makes all of row i of C NaN, even for zero elements, and one in
// B a column. So only those rows are searched that gave NaN in the first column or row
// of C.
func (p *plan) nanScale(c tensor.Dense, rows, cols extent) error {
	for i := range c.Rows {
		if x := c.Data[i*c.Stride]; x != x {
			if block, ok := p.a.nanBlock(rows.from + i); ok {
				return &NaNScale{"a", rows.from + i, block, p.a.t, p.b.t}
			}
		}
	}
	for j, x := range c.Row(0) {
		if x != x {
			if block, ok := p.b.nanBlock(cols.from + j); ok {
				return &NaNScale{"b", cols.from + j, block, p.a.t, p.b.t}
			}
		}
	}
	return nil
}

// nanBlock returns the first block of row l whose scale is NaN, or -1 if the global
// scale is.
func (s *side) nanBlock(l int) (block int, ok bool) {
	f := s.t.Format
	if f.Global && s.t.Global != s.t.Global {
		return -1, true
	}
	_, n := s.t.ScaleShape()
	first := s.scaleIndex(l, 0)
	for i := range n {
		var scale float32
		if f.Scale == format.F32 {
			scale = s.t.Scales32[first+i]
		} else {
			scale = f.Scale.Decode(uint32(s.t.Scales[first+i]))
		}
		if scale != scale {
			return i, true
		}
	}
	return 0, false
}
