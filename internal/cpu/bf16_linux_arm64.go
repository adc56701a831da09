//go:build !purego

package cpu

import "golang.org/x/sys/unix"

// hasBF16 reports whether the system lists BF16 dot products, which package x/sys/cpu does not read. (Linux,
// Documentation/arch/arm64/elf_hwcaps.rst.)
func hasBF16() bool {
	const (
		hwcap2 = 26 // AT_HWCAP2
		bf16   = 1 << 14
	)
	vector, _ := unix.Auxv() // none: no feature
	for _, entry := range vector {
		if entry[0] == hwcap2 {
			return entry[1]&bf16 != 0
		}
	}
	return false
}
