package ramdisk

import (
	"os"

	"golang.org/x/sys/unix"
)

// shared is where Linux has a file system in memory.
const shared = "/dev/shm"

// room is more than the tests of a package hold at once.
const room = 2 << 30

// folder returns the folder in memory, "" where there is none, or one that is
// full or may not be written.
func folder() string {
	var s unix.Statfs_t
	if unix.Statfs(shared, &s) != nil || s.Type != unix.TMPFS_MAGIC || s.Bavail < room/uint64(s.Bsize) {
		return ""
	}
	f, err := os.CreateTemp(shared, "microscale-test-")
	if err != nil {
		return ""
	}
	_ = f.Close() // it is empty
	if os.Remove(f.Name()) != nil {
		return ""
	}
	return shared
}
