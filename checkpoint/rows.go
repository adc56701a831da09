package checkpoint

import "github.com/microscale-go/microscale/quant"

// RowsOf returns rows [from, to) of t, a rowwise tensor, in its memory. Blocks must not cross the bounds.
func RowsOf(t *quant.Tensor, from, to int) *quant.Tensor {
	rows := *t
	rows.Shape = []int{to - from, t.Cols()}
	n := t.RowBytes()
	rows.Codes = t.Codes[from*n : to*n]
	if !t.Format.Scaled() || t.Format.PerTensor() {
		return &rows
	}
	first, width := t.Format.ScaleShape(from, t.Cols())
	end, _ := t.Format.ScaleShape(to, t.Cols())
	if t.Scales32 != nil {
		rows.Scales32 = t.Scales32[first*width : end*width]
	} else {
		rows.Scales = t.Scales[first*width : end*width]
	}
	return &rows
}
