//go:build !amd64 || purego

package cputest

const assembly = false
