package nn

import "github.com/microscale-go/microscale/internal/cpu"

// A rowKernel computes element-wise functions of a row in place, and the products of decode, with
// the bits of the portable Go code. n is a number of units or rows. The tables are in kernel_amd64.go and kernel_arm64.go, fastest first.
type rowKernel struct {
	needs   cpu.Set
	unit    int // elements
	round   func(x *float32, n int)
	exp     func(x *float32, n int, top float32, c *expConstants)
	sigmoid func(x *float32, n int, c *expConstants)
	largest func(x *float32, n int) (top float32)

	scores, addRows func(dst, vector, rows *float32, n, stride, blocks int)
}

func init() {
	cpu.AddTable("nn", &rowKernels, func(k *rowKernel) (string, cpu.Set) { return "rows of activations", k.needs })
}

// rowKernelFor returns the kernel for x, nil if there is none.
func rowKernelFor(x []float32) *rowKernel {
	for i := range rowKernels {
		if k := &rowKernels[i]; cpu.Uses(k.needs) && len(x) >= k.unit {
			return k
		}
	}
	return nil
}
