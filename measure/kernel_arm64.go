//go:build !purego

package measure

var rowKernels = []rowKernel{
	{sums32Needs, false, sums32},
	{sums16Needs, true, sums16},
}
