//go:build linux || darwin || freebsd

package host

import (
	"math"

	"golang.org/x/sys/unix"
)

// FreeBytes returns the free bytes of the filesystem of a directory; +Inf if unknown.
func FreeBytes(dir string) float64 {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return math.Inf(1)
	}
	return float64(s.Bavail) * float64(s.Bsize)
}
