//go:build (!amd64 && !arm64) || purego

package mma

var kernels []kernel
