//go:build !purego

package cpu

import "golang.org/x/sys/unix"

const requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM

// permitTiles asks the system to let this process use the registers of AMX, whose
// content it only then keeps for each thread and lays on the stack of a signal's
// handler; Go's handlers have room for it. It reports whether the system does.
func permitTiles() bool {
	const tileData = 18 // the number of the state
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
