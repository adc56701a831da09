package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// WriteNew writes a new file and syncs it. The error is fs.ErrExist if the file exists. A failed or
// killed call leaves an incomplete file.
func WriteNew(path string, data []byte) error { return writeNew(path, whole(data)) }

// whole returns a function that writes data.
func whole(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

func writeNew(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// temporaryPrefix begins the names of temporary files of WriteWhole. 16 hexadecimal digits follow.
const temporaryPrefix = ".microscale-"

// IsTemporary reports whether a file name is that of a temporary file, which a killed WriteWhole leaves.
func IsTemporary(name string) bool {
	digits, ok := strings.CutPrefix(name, temporaryPrefix)
	_, err := strconv.ParseUint(digits, 16, 64)
	return ok && err == nil && len(digits) == 16
}

// WriteWhole writes a file atomically and durably: it writes a temporary file in the same directory, syncs
// it, calls rename, and syncs the directory. rename moves the file to path: os.Rename replaces an
// existing file. On error before the last sync, path is unchanged.
func WriteWhole(path string, data []byte, rename func(from, to string) error) error {
	return WriteStream(path, whole(data), rename)
}

// WriteStream is WriteWhole for data that write produces.
func WriteStream(path string, write func(io.Writer) error, rename func(from, to string) error) error {
	dir := filepath.Dir(path)
	temporary := filepath.Join(dir, fmt.Sprintf("%s%016x", temporaryPrefix, rand.Uint64()))
	err := writeNew(temporary, write)
	if err == nil {
		err = rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // err is more informative
		return &fs.PathError{Op: "write", Path: path, Err: cause(err)}
	}
	return SyncDir(dir)
}

// CannotWrite returns the error of a directory that cannot hold a result: a name of the destination is too long, the path to it leads over
// a file or a link that leads nowhere, or the directory, if it is missing the one where it would be created, is not writable.
func CannotWrite(dir string, err error) error {
	err = cause(err) // not the temporary name
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return fmt.Errorf("%s: a name of the destination there is too long (%w): choose a shorter one", dir, err)
	}
	at := dir
	for at != filepath.Dir(at) {
		if _, missing := os.Lstat(at); missing == nil {
			break
		}
		at = filepath.Dir(at)
	}
	if info, broken := os.Stat(at); broken != nil || !info.IsDir() {
		return fmt.Errorf("%s: it is not a directory, and the destination would be inside (%w): choose a destination elsewhere", at, err)
	}
	return fmt.Errorf("%s: this directory is not writable (%w): choose a destination elsewhere", at, err)
}

// cause returns the cause of an error of package os, without the temporary name.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
