//go:build !amd64 || purego

package mma

var kernels []kernel
