//go:build !purego

package tensor

var bf16Kernels = []bf16Kernel{
	{
		widen512Needs,
		func(dst []float32, src []byte) { widen512(&dst[0], &src[0], len(dst)) },
		func(dst []byte, src []float32) { narrow512(&dst[0], &src[0], len(src)) },
	},
	units(widen256Needs, widen256, narrow256),
}
