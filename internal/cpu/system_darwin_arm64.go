//go:build !purego

package cpu

import "golang.org/x/sys/unix"

// systemFeatures returns the features that the system lists and package x/sys/cpu does not read: BF16 dot products.
func systemFeatures() Set {
	if has, err := unix.SysctlUint32("hw.optional.arm.FEAT_BF16"); err != nil || has == 0 {
		return 0
	}
	return ARMBF16
}
