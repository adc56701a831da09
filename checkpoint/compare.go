package checkpoint

import (
	"slices"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// BlockLength is the number of elements of the blocks over which
// measure.Result.MeanBlockSQNR is taken. It is the same for every format, so that formats
// can be compared.
const BlockLength = 32

// A Comparer measures the errors of tiles and reuses its scratch memory. The zero value is
// ready for use.
type Comparer struct {
	values []float32
	limits []float32
}

// Tile adds the error of a rowwise quantized tensor against its source to sums, which has blocks
// of BlockLength. q has the decode scales that clients compute (Convention.Decoded).
func (c *Comparer) Tile(sums *measure.Accumulator, want tensor.Dense, q *quant.Tensor) {
	c.rows(sums, q, want.Stride == want.Cols, func(from, to int, r *measure.Row) {
		r.Want = want.Data[from*want.Stride:][:(to-from)*want.Cols]
	})
}

// TileBF16 is Tile for a BF16 source.
func (c *Comparer) TileBF16(sums *measure.Accumulator, want tensor.BF16, q *quant.Tensor) {
	c.rows(sums, q, want.Stride == want.Cols, func(from, to int, r *measure.Row) {
		r.WantBF16 = want.Data[2*from*want.Stride:][:2*(to-from)*want.Cols]
	})
}

// rows measures the rows of q; want sets the source of rows [from, to), of one row unless rows are
// contiguous. It decodes a few rows at a time, which fit in a cache: a tile of high blocks is much
// larger. It measures contiguous rows of whole blocks as one, with the same sums.
func (c *Comparer) rows(sums *measure.Accumulator, q *quant.Tensor, contiguous bool, want func(from, to int, r *measure.Row)) {
	rows, cols := q.StoredRows(), q.StoredCols()
	row := measure.Row{Extent: q.Format.Block.Cols}
	if row.Extent == 0 {
		row.Extent = max(1, cols)
	}
	n := (cols + row.Extent - 1) / row.Extent
	largest := q.Format.Element.Max()
	height, together := max(1, tileElements/max(1, cols)), 1
	if contiguous && cols%row.Extent == 0 && cols%BlockLength == 0 {
		together = height
	}
	for from := 0; from < rows; from += height {
		to := min(from+height, rows)
		c.values = slices.Grow(c.values[:0], (to-from)*cols)[:(to-from)*cols]
		q.DequantizeRows(tensor.Of(to-from, cols, c.values), from, 1)
		for i := from; i < to; i += together {
			end := min(i+together, to)
			c.limits = slices.Grow(c.limits[:0], (end-i)*n)[:(end-i)*n]
			for j := range end - i {
				q.RowScales(c.limits[j*n:(j+1)*n], i+j)
			}
			for j, scale := range c.limits {
				c.limits[j] = float32(scale * largest)
			}
			row.Got, row.Limits = c.values[(i-from)*cols:(end-from)*cols], c.limits
			want(i, end, &row)
			sums.AddRow(row)
		}
	}
}
