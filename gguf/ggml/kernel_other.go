//go:build !amd64 || purego

package ggml

var kernels []kernel
