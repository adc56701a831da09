package verify

import (
	"math"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Blocks is what is known of the blocks of a quantized weight: runs of a row that
// share a scale, of BlockLength elements where one scale serves a whole row.
type Blocks struct {
	Tensor     string
	Count      int64
	ZeroScales int64   // scales whose code is zero: E8M0's 2^-127, which zeros take, and no value else
	Lost       int64   // blocks that hold values other than zero and are decoded to zeros
	Worst      float64 // the lowest SQNR of a block, dB; +Inf where all are exact, NaN where there are none
	Row, Col   int     // where the worst block begins; the first of equals
	Width      int     // elements of the worst block

	loss float64 // of the worst block, noise over signal
}

// merge adds the blocks of a later tile.
func (b *Blocks) merge(c Blocks) {
	b.Count += c.Count
	b.ZeroScales += c.ZeroScales
	b.Lost += c.Lost
	if c.Width > 0 && (b.Width == 0 || c.loss > b.loss) {
		b.loss, b.Row, b.Col, b.Width = c.loss, c.Row, c.Col, c.Width
	}
}

// finish computes the figures.
func (b *Blocks) finish() {
	b.Worst = math.NaN()
	if b.Width > 0 {
		b.Worst = -10 * math.Log10(b.loss)
	}
}

// blocksOf looks at the blocks of a tile: want, and what it is decoded to.
func blocksOf(t checkpoint.Tile, want, got tensor.Dense, q *quant.Tensor) Blocks {
	var b Blocks
	if t.First() || !q.Format.PerTensor() {
		b.ZeroScales = zeroScales(q)
	}
	extent := q.Format.Block.Cols
	if extent == 0 {
		extent = BlockLength
	}
	for i := range want.Rows {
		x, y := want.Row(i), got.Row(i)
		for c := 0; c < len(x); c += extent {
			end := min(c+extent, len(x))
			loss, lost := blockLoss(x[c:end], y[c:end])
			one := Blocks{Count: 1, loss: loss, Row: t.From + i, Col: t.FromCol + c, Width: end - c}
			if lost {
				one.Lost = 1
			}
			if math.IsNaN(loss) {
				one.Width = 0 // a block of zeros has no ratio
			}
			b.merge(one)
		}
	}
	return b
}

// blockLoss returns the noise of a block over its signal, NaN where it holds zeros
// alone or what is not finite, and whether all its values were lost.
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

// zeroScales counts scales of code zero.
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
