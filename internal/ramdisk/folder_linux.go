package ramdisk

import (
	"os"

	"golang.org/x/sys/unix"
)

// shared is Linux's file system in memory.
const shared = "/dev/shm"

// minFree is the required free space, more than the tests of a package use at a time.
const minFree = 2 << 30

// folder returns a writable folder in memory with enough free space, or "".
func folder() string {
	var s unix.Statfs_t
	if unix.Statfs(shared, &s) != nil || s.Type != unix.TMPFS_MAGIC || s.Bavail < minFree/uint64(s.Bsize) {
		return ""
	}
	f, err := os.CreateTemp(shared, "microscale-test-")
	if err != nil {
		return ""
	}
	_ = f.Close() // ignore: the file is empty
	if os.Remove(f.Name()) != nil {
		return ""
	}
	return shared
}
