//go:build !purego

package train

import "github.com/microscale-go/microscale/internal/cpu"

var adamwKernels = []adamwKernel{
	{cpu.AVX512, 16, update512},
	{cpu.AVX2, 8, update256},
}
