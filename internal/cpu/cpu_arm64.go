//go:build !purego

package cpu

// detect returns the features of this processor. Go's arm64 requires Advanced SIMD.
func detect() Set { return ARMASIMD }

// identity returns nothing: the table of parts has no arm64 processors.
func identity() (vendor string, family int) { return "", 0 }
