//go:build !purego

package nn

var rowKernels = []rowKernel{
	{exp512Needs, 16, round512, exp512, sigmoid512, largest512, scores512, addRows512},
	{round256Needs, 8, round256, exp256, sigmoid256, largest256, scores256, addRows256},
}
