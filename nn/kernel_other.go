//go:build (!amd64 && !arm64) || purego

package nn

var rowKernels []rowKernel
