//go:build darwin || freebsd

package memory

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Available returns the bytes of the machine's memory, including memory in use by other
// processes.
func Available() int64 {
	name := map[string]string{"darwin": "hw.memsize", "freebsd": "hw.physmem"}[runtime.GOOS]
	if n, err := unix.SysctlUint64(name); err == nil && n < unknown {
		return int64(n)
	}
	return unknown
}
