//go:build (amd64 || arm64) && !purego

package measure

// sumsOf returns a kernel by a function that takes the bytes of a wanted element.
func sumsOf(size int, sums func(want *byte, size int, got, limits *float32, step, next, blocks int, l *lanes,
	ratios *float32) int) sumFunc {
	return func(want *byte, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) int {
		return sums(want, size, got, limits, step, next, blocks, l, ratios)
	}
}
