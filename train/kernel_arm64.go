//go:build !purego

package train

var adamwKernels = []adamwKernel{
	{updateNEONNeeds, 4, updateNEON},
}
