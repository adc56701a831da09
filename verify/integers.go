package verify

import (
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/tensor"
)

// integers counts the elements of a tile that are outside the bound of their block. got is in a type of ggml.
func (c *compared) integers(t checkpoint.Tile, want, got tensor.Dense, w *checkpoint.Weight) {
	elements, boundOf, ok := w.Blocks()
	if !ok { // Unbounded
		return
	}
	for i := range want.Rows {
		x, y := want.Row(i), got.Row(i)
		for from := 0; from < len(x); from += elements {
			to := min(from+elements, len(x))
			var amax float32
			for _, v := range x[from:to] {
				amax = max(amax, v, -v) // NaN if v is
			}
			if amax-amax != 0 {
				c.unbound += int64(to - from)
				continue
			}
			bound := boundOf(amax)
			for j := from; j < to; j++ {
				if d := y[j] - x[j]; d >= -bound && d <= bound {
					continue
				}
				if c.differ == 0 {
					c.element = deviation{t.From + i, t.FromCol + j, x[j], y[j]}
				}
				c.differ++
			}
		}
	}
}
