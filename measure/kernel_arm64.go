//go:build !purego

package measure

var rowKernels = []rowKernel{
	{sumsNEONNeeds, false, sumsOf(4)},
	{sumsNEONNeeds, true, sumsOf(2)},
}

// sumsOf returns the kernel for wanted elements of that many bytes.
func sumsOf(size int) func(want *byte, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) int {
	return func(want *byte, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) int {
		return sumsNEON(want, size, got, limits, step, next, blocks, l, ratios)
	}
}
