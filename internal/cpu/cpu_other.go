//go:build (!amd64 && !arm64) || purego

package cpu

// detect returns nothing: there are no kernels in assembly.
func detect() Set { return 0 }

// identity returns nothing: there are no kernels to order.
func identity() (vendor string, family int) { return "", 0 }
