//go:build !purego

package cpu

import "golang.org/x/sys/unix"

// hasBF16 reports whether the system lists BF16 dot products, which package x/sys/cpu does not read.
func hasBF16() bool {
	has, err := unix.SysctlUint32("hw.optional.arm.FEAT_BF16")
	return err == nil && has != 0
}
