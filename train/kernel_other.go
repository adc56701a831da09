//go:build !amd64 || purego

package train

var adamwKernels []adamwKernel
