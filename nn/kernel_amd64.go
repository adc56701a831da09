//go:build !purego

package nn

import "github.com/microscale-go/microscale/internal/cpu"

var rowKernels = []rowKernel{
	{cpu.AVX512, 16, round512, exp512, sigmoid512, largest512, scores512, addRows512},
	{cpu.AVX2, 8, round256, exp256, sigmoid256, largest256, scores256, addRows256},
}
