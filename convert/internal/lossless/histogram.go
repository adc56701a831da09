package lossless

import (
	"math"

	"github.com/microscale-go/microscale/quant"
)

// A Histogram counts blocks of NVFP4 that a cast makes, by the scale and the magnitudes of the codes in the source:
// all that decides whether they are exact under a global scale.
type Histogram struct{ counts map[key]int64 }

// NewHistogram returns an empty histogram.
func NewHistogram() Histogram { return Histogram{map[key]int64{}} }

// Add counts the blocks of a tile, whose RowScales are the decode scales that clients compute. Every block of
// the target must lie in one of the source.
func (h Histogram) Add(c Cast, src *quant.Tensor) {
	n := c.From.PaddedCols(src.Cols())
	codes := make([]byte, n)
	_, blocks := src.ScaleShape()
	scales := make([]float32, blocks)
	for i := range src.Rows() {
		split(src.Format.Element, codes, src.Codes[i*src.RowBytes():])
		src.RowScales(scales, i)
		for col := 0; col < src.Cols(); col += c.To.Block.Cols {
			var set uint64
			for _, code := range codes[col:min(col+c.To.Block.Cols, src.Cols())] {
				set |= 1 << code
			}
			h.counts[keyOf(scales[col/c.From.Block.Cols], set)]++
		}
	}
}

// Merge adds the counts of another histogram.
func (h Histogram) Merge(other Histogram) {
	for k, n := range other.counts {
		h.counts[k] += n
	}
}

// Top returns the largest finite scale of blocks with values other than zeros; 0 if there is none.
func (h Histogram) Top() (top float32) {
	for k := range h.counts {
		if s := math.Float32frombits(k.scale); k.magnitudes > 1 && s > top && !math.IsInf(float64(s), 0) {
			top = s
		}
	}
	return top
}

// Inexact returns the number of blocks without an exact cast. c has the global scale in question.
func (h Histogram) Inexact(c *Caster) (n int64) {
	for k, count := range h.counts {
		if c.solution(k).why != Exact {
			n += count
		}
	}
	return n
}
