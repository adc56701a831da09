//go:build !purego

package tensor

import "github.com/microscale-go/microscale/internal/cpu"

var bf16Kernels = []bf16Kernel{
	{
		cpu.AVX512,
		func(dst []float32, src []byte) { widen512(&dst[0], &src[0], len(dst)) },
		func(dst []byte, src []float32) { narrow512(&dst[0], &src[0], len(src)) },
	},
	{cpu.AVX2, widenUnits, narrowUnits},
}

const (
	bf16Unit = 16 // elements that AVX2 converts at a time
	bf16Size = 2  // bytes
)

func widenUnits(dst []float32, src []byte) {
	whole := len(dst) / bf16Unit * bf16Unit
	if whole > 0 {
		widen256(&dst[0], &src[0], whole/bf16Unit)
	}
	widenPlain(dst[whole:], src[bf16Size*whole:])
}

func narrowUnits(dst []byte, src []float32) {
	whole := len(src) / bf16Unit * bf16Unit
	if whole > 0 {
		narrow256(&dst[0], &src[0], whole/bf16Unit)
	}
	narrowPlain(dst[bf16Size*whole:], src[whole:])
}
