// Package limits reads small files (configurations, recipes, journals) with a limit on their size. A
// device, a pipe or a wrong file is an error: reading it neither blocks nor fills the memory. It also
// checks ranges of containers of tensors, and describes their faults in lines of limited length.
package limits

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular is the error for a directory, a device, a pipe or a socket.
var ErrNotRegular = errors.New("not a regular file")

// TooLarge is the error for a file of more than Limit bytes.
type TooLarge struct{ Limit int64 }

func (e TooLarge) Error() string {
	unit, name := int64(1), "bytes"
	switch {
	case e.Limit >= 1<<20 && e.Limit%(1<<20) == 0:
		unit, name = 1<<20, "MiB"
	case e.Limit >= 1<<10 && e.Limit%(1<<10) == 0:
		unit, name = 1<<10, "KiB"
	}
	return fmt.Sprintf("the file is larger than the limit of %d %s", e.Limit/unit, name)
}

// Open opens a regular file, or a link to one, and returns it with its file info. Errors are of type
// [*fs.PathError]. For other kinds of files, the cause is [ErrNotRegular].
func Open(path string) (*os.File, fs.FileInfo, error) {
	// Check with Stat first: Open would wait for the writer of a pipe.
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReadFile returns the content of a regular file of at most limit bytes. Errors are those of [Open]. For
// a larger file, the cause is a [TooLarge].
func ReadFile(path string, limit int64) ([]byte, error) {
	f, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tooLarge := &fs.PathError{Op: "read", Path: path, Err: TooLarge{limit}}
	if info.Size() > limit {
		return nil, tooLarge
	}
	data := make([]byte, 0, info.Size()+1) // one more byte, to reach the end without growing
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > limit: // the file grew, or its size is unknown
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

// Cause returns the cause of an error of this package or of package os, without path and operation.
func Cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
