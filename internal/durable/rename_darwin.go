package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// RenameNew renames a file or directory. It replaces nothing: the error is os.ErrExist if the new name exists.
func RenameNew(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EINVAL):
		return renameReserved(from, to)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
