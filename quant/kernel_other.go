//go:build !amd64 || purego

package quant

// There are no kernels: the plain form does everything.
var (
	fusedKernels     []fusedKernel
	encodeKernels    []encodeKernel
	amaxKernels      []amaxKernel
	widenKernels     []widenKernel
	columnKernels    []columnKernel
	transposeKernels []transposeKernel
	decodeKernels    []decodeKernel
	rowsKernels      []rowsKernel
	amaxBF16Kernels  []amaxBF16Kernel
)

func (r *run) endStream() {}
