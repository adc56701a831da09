//go:build (!amd64 && !arm64) || purego

package ggml

var kernels []kernel
