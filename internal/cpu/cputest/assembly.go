//go:build (amd64 || arm64) && !purego

package cputest

const assembly = true
