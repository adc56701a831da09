//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

// detect returns the features of this processor. Go's arm64 requires Advanced SIMD.
func detect() Set {
	s := ARMASIMD | systemFeatures()
	if cpu.ARM64.HasASIMDDP {
		s |= ARMDotProd
	}
	if cpu.ARM64.HasI8MM {
		s |= ARMI8MM
	}
	return s
}

// identity returns nothing: the table of parts has no arm64 processors.
func identity() (vendor string, family int) { return "", 0 }
