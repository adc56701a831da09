//go:build (!amd64 && !arm64) || purego

package quant

// There are no kernels: the plain Go twins do everything.
var (
	fusedKernels     []fusedKernel
	rowKernels       []rowKernel
	columnKernels    []columnKernel
	scaleKernels     []scaleKernel
	joinKernels      []joinKernel
	encodeKernels    []encodeKernel
	amaxKernels      []amaxKernel
	searchKernels    []searchKernel
	philoxKernels    []philoxKernel
	hadamardKernels  []hadamardKernel
	decodeKernels    []decodeKernel
	spreadKernels    []spreadKernel
	transposeKernels []transposeKernel
	codesKernels     []codesKernel
)

func fence() {}
