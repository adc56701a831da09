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
		bytes += f.Bytes(w[0], w[1])
		if f.Global {
			bytes += 4
		}
	}
	return bytes
}
