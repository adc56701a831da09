//go:build emulated

package slow

const emulated = true
