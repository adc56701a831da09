//go:build !purego

package tensor

var bf16Kernels = []bf16Kernel{units(widenNEONNeeds, widenNEON, narrowNEON)}
