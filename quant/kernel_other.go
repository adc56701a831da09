//go:build (!amd64 && !arm64) || purego

package quant

// There are no kernels: the plain Go twins do everything.

// fence orders non-temporal stores, of which there are none.
func fence() {}
