//go:build (!amd64 && !arm64) || purego

package train

var adamwKernels []adamwKernel
