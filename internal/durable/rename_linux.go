package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// RenameNew renames a file or directory. It replaces nothing: the error is os.ErrExist if the new name exists.
func RenameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return renameReserved(from, to) // NFS and some others
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
