package verify

import (
	"math"
	"slices"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Comparer measures tiles, one after the other, in memory that it keeps. The
// zero value is ready.
type Comparer struct {
	values []float32
	limits []float32
}

// Tile adds the error of a rowwise quantized tensor, with the decode scales that
// clients compute (checkpoint.Convention.Decoded), against its source to sums.
func (c *Comparer) Tile(sums *measure.Accumulator, want tensor.Dense, q *quant.Tensor) {
	c.rows(sums, q, func(i int, r *measure.Row) { r.Want = want.Row(i) })
}

// TileBF16 is Tile of a source in BF16.
func (c *Comparer) TileBF16(sums *measure.Accumulator, want tensor.BF16, q *quant.Tensor) {
	c.rows(sums, q, func(i int, r *measure.Row) { r.WantBF16 = want.Row(i) })
}

// quantizers returns what nearest gives for the block formats of quantized weights, by
// name: for none where it is nil, nor for those with one scale for a whole tensor, which is
// not searched.
func quantizers(pairs []pair, nearest func(quant.Format) (quant.Quantizer, error)) (map[string]quant.Quantizer, error) {
	found := map[string]quant.Quantizer{}
	for _, p := range pairs {
		f := p.got.Format
		if _, ok := found[f.Name]; ok || nearest == nil || !p.got.Quantized() || f.PerTensor() {
			continue
		}
		q, err := nearest(f)
		if err != nil {
			return nil, err
		}
		q.Search = quant.NoSearch
		found[f.Name] = q
	}
	return found, nil
}

// nearestOf returns what a quantizer makes of a tile in the format of a quantized
// weight, under its global scale.
func nearestOf(q quant.Quantizer, want tensor.Dense, got *checkpoint.Weight) (*quant.Tensor, error) {
	f := got.Format
	with := quant.With{Threads: 1}
	if f.Global {
		amax := min(got.Global*f.Element.Max()*f.Scale.Max(), math.MaxFloat32)
		with.Amax = &amax
	}
	return q.Rowwise(want, with)
}

// rows measures the lines of q; want fills in what was wanted of line i. They are decoded
// some at a time, which stay in a cache: a tile of high blocks is much larger.
func (c *Comparer) rows(sums *measure.Accumulator, q *quant.Tensor, want func(i int, r *measure.Row)) {
	rows, cols := q.Lines(), q.Width()
	row := measure.Row{Extent: q.Format.Block.Cols}
	if row.Extent == 0 {
		row.Extent = max(1, cols)
	}
	n := (cols + row.Extent - 1) / row.Extent
	c.limits = slices.Grow(c.limits[:0], n)[:n]
	largest := q.Format.Element.Max()
	row.Limits = c.limits
	band := max(1, checkpoint.TileElements/max(1, cols))
	for from := 0; from < rows; from += band {
		n := min(band, rows-from)
		c.values = slices.Grow(c.values[:0], n*cols)[:n*cols]
		got := tensor.Of(n, cols, c.values)
		q.DequantizeLines(got, from, 1)
		for i := range n {
			q.LineScales(c.limits, from+i)
			for j, scale := range c.limits {
				c.limits[j] = float32(scale * largest)
			}
			row.Got = got.Row(i)
			want(from+i, &row)
			sums.AddRow(row)
		}
	}
}
