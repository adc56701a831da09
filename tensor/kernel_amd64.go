//go:build !purego

package tensor

var bf16Kernels = []bf16Kernel{
	{
		widen512Needs,
		func(dst []float32, src []byte) { widen512(&dst[0], &src[0], len(dst)) },
		func(dst []byte, src []float32) { narrow512(&dst[0], &src[0], len(src)) },
	},
	{widen256Needs, widenUnits, narrowUnits},
}

const bf16Size = 2 // bytes

func widenUnits(dst []float32, src []byte) {
	done := widen256(&dst[0], &src[0], len(dst))
	widenPlain(dst[done:], src[bf16Size*done:])
}

func narrowUnits(dst []byte, src []float32) {
	done := narrow256(&dst[0], &src[0], len(src))
	narrowPlain(dst[bf16Size*done:], src[done:])
}
