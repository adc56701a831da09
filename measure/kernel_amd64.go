//go:build !purego

package measure

var rowKernels = []rowKernel{
	{sums32Needs, false, sums32},
	{sums16Needs, true, sums16},
	{sums32AVX2Needs, false, sums32AVX2},
	{sums16AVX2Needs, true, sums16AVX2},
}
