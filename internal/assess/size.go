package assess

import (
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/quant"
)

// bytesIn returns the size of a model in bytes with the linear layers in format f, and all other
// weights in BF16.
func bytesIn(n decoder.Size, f quant.Format) int {
	bytes := 2 * n.Other
	for _, w := range n.Linear {
		bits := w[0] * f.PaddedCols(w[1]) * f.Element.StoredBits()
		if f.Scaled() {
			rows, cols := f.ScaleShape(w[0], w[1])
			bits += rows * cols * f.Scale.StoredBits()
		}
		if f.Global {
			bits += 32
		}
		bytes += bits / 8
	}
	return bytes
}
