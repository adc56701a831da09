//go:build !purego

package measure

var rowKernels = []rowKernel{
	{sumsNEONNeeds, false, sumsOf(4, sumsNEON)},
	{sumsNEONNeeds, true, sumsOf(2, sumsNEON)},
}
