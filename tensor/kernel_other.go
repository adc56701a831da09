//go:build !amd64 || purego

package tensor

var bf16Kernels []bf16Kernel
