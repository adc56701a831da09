//go:build !purego

package train

var adamwKernels = []adamwKernel{
	{update512Needs, 16, update512},
	{update256Needs, 8, update256},
}
