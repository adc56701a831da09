//go:build (!amd64 && !arm64) || purego

package measure

var rowKernels []rowKernel
