package evaluation

import (
	"fmt"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
)

// checkFormats returns an error that matches decoder.ErrMemory if the linear layers of a model do not fit
// in the available bytes of memory in all formats together.
func checkFormats(n decoder.Size, formats []quant.Format, available int64) error {
	need := 0
	for _, f := range formats {
		need += bytesIn(n, f) - 2*n.Other
	}
	if int64(need) > available {
		return fmt.Errorf("%w in %d formats: they take %s, but %s are available: use fewer formats at a time", decoder.ErrMemory, len(formats),
			memory.Text(float64(need)), memory.Text(float64(available)))
	}
	return nil
}

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
