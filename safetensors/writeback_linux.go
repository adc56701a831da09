package safetensors

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback starts to write a range of a file to the disk. Errors are those that the next
// sync reports, or say that the file system cannot do it.
func startWriteback(f *os.File, off, n int64) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = unix.SyncFileRange(int(fd), off, n, unix.SYNC_FILE_RANGE_WRITE) })
	}
}
