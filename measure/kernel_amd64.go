//go:build !purego

package measure

import "github.com/microscale-go/microscale/internal/cpu"

var rowKernels = []rowKernel{{cpu.AVX512, false, sums32}, {cpu.AVX512, true, sums16}}
