//go:build !amd64 || purego

package quant

// There are no kernels: the plain form does everything.
var (
	fusedKernels     []fusedKernel
	encodeKernels    []encodeKernel
	amaxKernels      []amaxKernel
	widenKernels     []widenKernel
	transposeKernels []transposeKernel
	decodeKernels    []decodeKernel
)
