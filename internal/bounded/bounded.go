// Package bounded reads files that are small by nature (configurations, recipes,
// journals) with a limit, so that a device, a pipe or the wrong file is an error
// and neither waits nor fills the memory.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular is the error of a directory, a device, a pipe or a socket.
var ErrNotRegular = errors.New("not a regular file")

// A TooLarge error is a file of more bytes than its reader takes.
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

// Open opens a regular file, or a link to one, and returns it and what the system
// says of it. Errors are [*fs.PathError]s; that of another kind of file is
// [ErrNotRegular].
func Open(path string) (*os.File, fs.FileInfo, error) {
	// Stat comes before Open, which would wait for a pipe's writer.
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

// ReadFile returns the content of a regular file of at most limit bytes. Errors are
// [*fs.PathError]s, as those of [Open]; that of a larger file is a [TooLarge].
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
	data := make([]byte, 0, info.Size()+1) // one more, to see the end without growing
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > limit: // it grew, or the system does not know its size
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

// Cause returns the cause of an error of this package or of package os, without the
// path and the operation.
func Cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
