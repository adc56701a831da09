//go:build !purego

package cpu

import "golang.org/x/sys/unix"

// systemFeatures returns the features that the system lists and package x/sys/cpu does not read: BF16 dot products. (Linux,
// Documentation/arch/arm64/elf_hwcaps.rst.)
func systemFeatures() Set {
	const (
		hwcap2 = 26 // AT_HWCAP2
		bf16   = 1 << 14
	)
	vector, _ := unix.Auxv() // none: no feature
	for _, entry := range vector {
		if entry[0] == hwcap2 && entry[1]&bf16 != 0 {
			return ARMBF16
		}
	}
	return 0
}
