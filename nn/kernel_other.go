//go:build !amd64 || purego

package nn

var rowKernels []rowKernel
