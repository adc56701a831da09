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

// Tile adds the error of a rowwise quantized tensor against its source to sums. q has the
// decode scales that clients compute (Convention.Decoded).
func (c *Comparer) Tile(sums *measure.Accumulator, want tensor.Dense, q *quant.Tensor) {
	c.rows(sums, q, func(i int, r *measure.Row) { r.Want = want.Row(i) })
}

// TileBF16 is Tile for a BF16 source.
func (c *Comparer) TileBF16(sums *measure.Accumulator, want tensor.BF16, q *quant.Tensor) {
	c.rows(sums, q, func(i int, r *measure.Row) { r.WantBF16 = want.Row(i) })
}

// rows measures the rows of q; want sets the source of row i. It decodes a few rows at a
// time, which fit in a cache: a tile of high blocks is much larger.
func (c *Comparer) rows(sums *measure.Accumulator, q *quant.Tensor, want func(i int, r *measure.Row)) {
	rows, cols := q.StoredRows(), q.StoredCols()
	row := measure.Row{Extent: q.Format.Block.Cols}
	if row.Extent == 0 {
		row.Extent = max(1, cols)
	}
	n := (cols + row.Extent - 1) / row.Extent
	c.limits = slices.Grow(c.limits[:0], n)[:n]
	largest := q.Format.Element.Max()
	row.Limits = c.limits
	height := max(1, TileElements/max(1, cols))
	for from := 0; from < rows; from += height {
		n := min(height, rows-from)
		c.values = slices.Grow(c.values[:0], n*cols)[:n*cols]
		got := tensor.Of(n, cols, c.values)
		q.DequantizeRows(got, from, 1)
		for i := range n {
			q.RowScales(c.limits, from+i)
			for j, scale := range c.limits {
				c.limits[j] = float32(scale * largest)
			}
			row.Got = got.Row(i)
			want(from+i, &row)
			sums.AddRow(row)
		}
	}
}
