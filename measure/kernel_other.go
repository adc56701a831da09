//go:build !amd64 || purego

package measure

var rowKernels []rowKernel
