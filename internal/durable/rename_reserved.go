//go:build !windows

package durable

import (
	"errors"
	"os"
	"syscall"
)

// renameReserved is RenameNew for systems and filesystems whose rename always replaces. It links
// a file to its new name, which fails if the name exists. For a directory, or a file on a
// filesystem without links, it reserves the name with an empty directory or file, and then
// replaces that. A process that is killed in between leaves the empty one, which the user has
// to remove. If another process replaces the empty file in between, its file is lost. An empty
// directory is replaced only while it is empty, and only by a directory.
func renameReserved(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if err = os.Link(from, to); err == nil {
			return os.Remove(from)
		}
		if errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if info.IsDir() {
		err = os.Mkdir(to, 0o777)
	} else {
		var f *os.File
		if f, err = os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return err
	}
	// os.Rename never replaces a directory, rename(2) does where it is empty.
	if err := syscall.Rename(from, to); err != nil {
		return errors.Join(&os.LinkError{Op: "rename", Old: from, New: to, Err: err}, os.Remove(to))
	}
	return nil
}
