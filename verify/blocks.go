package verify

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Blocks describes the blocks of a quantized weight: runs of a row that share a scale, of 32
// elements if a scale covers a whole row or tensor.
type Blocks struct {
	Tensor     string
	Count      int64
	ZeroScales int64   // scales with code 0: E8M0's 2^-127, and zero in other formats
	Lost       int64   // blocks with nonzero values that are decoded to zeros
	Worst      float64 // the lowest SQNR of a block, dB; +Inf if all are exact, NaN if there are no blocks
	Row, Col   int     // origin of the worst block, the first if several are equal
	Width      int     // elements of the worst block

	// Deviations that no rule and no rounding of the format causes (see quant.Bound).
	Beyond    int64 // elements whose decoded values are too far from the source
	BadScales int64 // scales that are out of range for their block
	Unchecked int64 // elements of blocks without a bound: with NaN or Inf in the source, or a subnormal scale

	loss   float64   // of the worst block, noise over signal
	beyond deviation // the first element beyond
	bad    deviation // the first of the bad scales

	// For formats with one scale for the whole tensor, which is compared at the end.
	scale     float32
	amax      float32 // largest magnitude of the source; without meaning if nonFinite
	nonFinite bool    // the source holds NaN or Inf
}

// A deviation is the position of a wrong element or block, with the expected and the actual
// number.
type deviation struct {
	row, col  int
	want, got float32 // an element and what it is decoded to; the amax of a block and its scale
}

// merge adds the blocks of a later tile.
func (b *Blocks) merge(c Blocks) {
	b.Count += c.Count
	b.ZeroScales += c.ZeroScales
	b.Lost += c.Lost
	b.Unchecked += c.Unchecked
	if c.Width > 0 && (b.Width == 0 || c.loss > b.loss) {
		b.loss, b.Row, b.Col, b.Width = c.loss, c.Row, c.Col, c.Width
	}
	if b.Beyond == 0 {
		b.beyond = c.beyond
	}
	if b.BadScales == 0 {
		b.bad = c.bad
	}
	b.Beyond += c.Beyond
	b.BadScales += c.BadScales
	b.scale = max(b.scale, c.scale)
	b.amax = max(b.amax, c.amax)
	b.nonFinite = b.nonFinite || c.nonFinite
}

// finish computes Worst.
func (b *Blocks) finish() {
	b.Worst = math.NaN()
	if b.Width > 0 {
		b.Worst = -10 * math.Log10(b.loss)
	}
}

// faults describes the elements and scales outside the bound of a format.
func (b *Blocks) faults(f quant.Format) (faults []string) {
	if b.Beyond > 0 {
		d := b.beyond
		faults = append(faults, fmt.Sprintf("%d of its elements are further from the source than any rounding to %s allows; the first, at "+
			"row %d, column %d, is %g in the source and decoded to %g", b.Beyond, f, d.row, d.col, d.want, d.got))
	}
	if b.BadScales > 0 {
		d := b.bad
		faults = append(faults, fmt.Sprintf("%d of its scales are out of range of the values in their blocks; the first, at row %d, column "+
			"%d, is %g where the largest magnitude is %g", b.BadScales, d.row, d.col, d.got, d.want))
	}
	return faults
}

// A blockChecker compares the blocks of one quantized tile with the source.
type blockChecker struct {
	tile      checkpoint.Tile
	format    quant.Format // of the file: q may have its scales decoded
	global    float32
	want, got tensor.Dense
	bound     quant.Bound
	Blocks
}

// blocksOf compares the blocks of a tile of a weight, want, with the codes q of the file. f and
// global are the format and the global scale of the file.
func blocksOf(t checkpoint.Tile, f quant.Format, global float32, want tensor.Dense, q *quant.Tensor) Blocks {
	c := blockChecker{tile: t, format: f, global: global, want: want, got: q.Dequantize(1), bound: f.Bound()}
	if t.First() || !f.PerTensor() {
		c.ZeroScales = zeroScales(q)
	}
	band := max(1, f.Block.Rows)
	_, blocks := q.ScaleShape()
	scales := make([]float32, blocks)
	for i := 0; i < want.Rows; i += band {
		q.RowScales(scales, i)
		for j, scale := range scales {
			c.block(i, min(i+band, want.Rows), j, scale)
		}
	}
	return c.Blocks
}

// block compares block j of rows [from, to) of the tile, which have one scale.
func (c *blockChecker) block(from, to, j int, scale float32) {
	width := c.format.Block.Cols
	c0, c1, run := j*width, min((j+1)*width, c.want.Cols), width
	if width == 0 {
		c0, c1, run = 0, c.want.Cols, checkpoint.BlockLength
	}
	var amax float32
	finite := true
	for i := from; i < to; i++ {
		for _, x := range c.want.Row(i)[c0:c1] {
			finite = finite && x-x == 0
			amax = max(amax, float32(math.Abs(float64(x))))
		}
	}
	bounded := finite && c.bound.Bounds(scale, c.global)
	for i := from; i < to; i++ {
		x, y := c.want.Row(i)[c0:c1], c.got.Row(i)[c0:c1]
		c.runs(c.tile.From+i, c.tile.FromCol+c0, run, x, y)
		if bounded {
			c.elements(c.tile.From+i, c.tile.FromCol+c0, x, y, scale)
		} else {
			c.Unchecked += int64(len(x))
		}
	}
	c.nonFinite = c.nonFinite || !finite
	c.amax = max(c.amax, amax)
	switch {
	case c.format.PerTensor():
		c.scale = max(c.scale, scale)
	case bounded && !c.bound.Scale(scale, c.global, amax):
		c.merge(Blocks{BadScales: 1, bad: deviation{c.tile.From + from, c.tile.FromCol + c0, amax, scale}})
	}
}

// runs adds the SQNR of the blocks of a row from the given column on.
func (b *Blocks) runs(row, col, width int, x, y []float32) {
	for k := 0; k < len(x); k += width {
		end := min(k+width, len(x))
		loss, lost := blockLoss(x[k:end], y[k:end])
		one := Blocks{Count: 1, loss: loss, Row: row, Col: col + k, Width: end - k}
		if lost {
			one.Lost = 1
		}
		if math.IsNaN(loss) {
			one.Width = 0 // a block of zeros has no ratio
		}
		b.merge(one)
	}
}

// elements adds the elements of a row of a block that are outside the bound.
func (c *blockChecker) elements(row, col int, x, y []float32, scale float32) {
	if n, k := c.bound.Beyond(x, y, scale); n > 0 {
		c.merge(Blocks{Beyond: int64(n), beyond: deviation{row, col + k, x[k], y[k]}})
	}
}

// blockLoss returns the noise of a block over its signal, which is NaN for a block of zeros or
// with NaN or Inf. lost reports whether all values became zero.
func blockLoss(want, got []float32) (loss float64, lost bool) {
	var signal, noise, left float64
	for i, x := range want {
		y := float64(got[i])
		e := y - float64(x)
		signal += float64(x) * float64(x)
		noise += e * e
		left += y * y
	}
	return noise / signal, signal > 0 && left == 0
}

// zeroScales counts scales with code zero.
func zeroScales(q *quant.Tensor) (n int64) {
	for _, s := range q.Scales {
		if s == 0 {
			n++
		}
	}
	for _, s := range q.Scales32 {
		if s == 0 {
			n++
		}
	}
	return n
}

// A wholeScale identifies the scale of a whole tensor: the only one of its format, or the global
// one.
type wholeScale struct {
	format string
	bits   uint32
}

// checkWholeScales compares the scales of whole tensors with the amax of their weights. Fused
// weights, or the experts of a layer, share one scale, which represents the maximum of all.
func checkWholeScales(totals []compared, pairs []pair) {
	at := func(i int) (float32, bool) {
		switch f := pairs[i].got.Format; {
		case f.Global:
			return pairs[i].got.Global, true
		case f.PerTensor():
			return totals[i].blocks.scale, true
		}
		return 0, false
	}
	amaxes, nonFinite := map[wholeScale]float32{}, map[wholeScale]bool{}
	for i := range totals {
		if scale, ok := at(i); ok {
			key := wholeScale{pairs[i].got.Format.Name, math.Float32bits(scale)}
			amaxes[key] = max(amaxes[key], totals[i].blocks.amax)
			nonFinite[key] = nonFinite[key] || totals[i].blocks.nonFinite
		}
	}
	for i := range totals {
		scale, ok := at(i)
		f := pairs[i].got.Format
		key := wholeScale{f.Name, math.Float32bits(scale)}
		if !ok || nonFinite[key] {
			continue
		}
		bound := f.Bound()
		if !bound.Bounds(scale, scale) {
			continue
		}
		if f.Global && !bound.Global(scale, amaxes[key]) || f.PerTensor() && !bound.Scale(scale, 1, amaxes[key]) {
			totals[i].blocks.merge(Blocks{BadScales: 1, bad: deviation{want: amaxes[key], got: scale}})
		}
	}
}
