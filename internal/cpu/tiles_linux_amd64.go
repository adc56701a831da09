//go:build !purego

package cpu

import "golang.org/x/sys/unix"

const requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM

// permitTiles requests permission for this process to use the AMX registers, and reports
// whether the system grants it. With the permission, the kernel saves the registers per thread
// and on the stack of signal handlers; Go's handler stacks are large enough.
func permitTiles() bool {
	const tileData = 18 // number of the state component
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
