//go:build !purego

package measure

var rowKernels = []rowKernel{
	{sums32Needs, false, sums32},
	{sums16Needs, true, sums16},
	{sumsAVX2Needs, false, sumsOf(4, sumsAVX2)},
	{sumsAVX2Needs, true, sumsOf(2, sumsAVX2)},
}
