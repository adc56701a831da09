//go:build !windows

package convert

import (
	"errors"
	"os"
	"syscall"
)

// renameReserved is renameNew for systems and filesystems whose rename always
// replaces. A file is linked under its new name, which fails where the name is taken.
// A directory, and a file on a filesystem without links, first reserves the name by
// an empty directory or file, and then replaces that. A process that is killed in
// between leaves the empty one, which has to be removed by hand. A file that another
// process puts in the place of the empty file in that moment is lost; an empty
// directory is never replaced by anything but a directory, and only while it is empty.
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
