package nn

import "github.com/microscale-go/microscale/internal/cpu"

// A lineKernel computes functions of every element of a line, with the bits of the
// plain form; n is how many units there are. The rows are in the table of this file's
// amd64 twin, best first.
type lineKernel struct {
	tier    cpu.Tier
	unit    int // elements
	round   func(x *float32, n int)
	exp     func(x *float32, n int, top float32, c *expConstants)
	sigmoid func(x *float32, n int, c *expConstants)
}

// lineKernelOf returns the kernel for the line; nil where there is none.
func lineKernelOf(x []float32) *lineKernel {
	for i := range lineKernels {
		if k := &lineKernels[i]; k.tier <= cpu.Best() && len(x) >= k.unit {
			return k
		}
	}
	return nil
}
