//go:build !amd64 || purego

package quant

// There are no kernels: the plain form does everything.
var (
	fusedKernels     []fusedKernel
	encodeKernels    []encodeKernel
	searchKernels    []searchKernel
	amaxKernels      []amaxKernel
	spreadKernels    []spreadKernel
	fetchKernels     []fetchKernel
	transposeKernels []transposeKernel
	pairKernels      []pairKernel
	decodeKernels    []decodeKernel
	rowsKernels      []rowsKernel
	amaxBF16Kernels  []amaxBF16Kernel
	lineKernels      []lineKernel
	philoxKernels    []philoxKernel
	hadamardKernels  []hadamardKernel
	bothKernels      []bothKernel
	factorKernels    []factorKernel
)

func fence() {}
