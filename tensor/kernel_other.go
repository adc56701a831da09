//go:build (!amd64 && !arm64) || purego

package tensor

var bf16Kernels []bf16Kernel
