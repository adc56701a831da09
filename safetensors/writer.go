package safetensors

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/limits"
)

// A Writer fills in a file that a [Layout] planned.
//
// Until Close succeeds, the first eight bytes are zero, which no reader accepts: the file of a
// killed writer is not mistaken for a finished one. To hide the unfinished file, write under a
// temporary name in the destination's directory, rename it after Close, and sync the
// directory. The Writer does none of these.
type Writer struct {
	f       *handle
	path    string
	layout  *Layout
	written []atomic.Int64 // bytes by tensor, in the layout's order
	closed  bool
	done    bool // Close succeeded
}

// Create creates a file of the layout's size. If the file exists, it is unchanged and the
// error wraps [os.ErrExist]. On error, Create leaves no new file.
func Create(path string, l *Layout) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	// Set the full size first: if it is too large for the filesystem, fail before any work.
	if err = f.Truncate(l.FileSize()); err != nil {
		err = ioError(path, fmt.Sprintf("making the file %d bytes long", l.FileSize()), err)
	} else if _, err = f.WriteAt(l.prefix[lengthSize:], lengthSize); err != nil {
		err = ioError(path, place("", lengthSize), err)
	}
	var info os.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err != nil {
		_ = f.Close() // the file is removed
		return nil, errors.Join(err, os.Remove(path))
	}
	return newWriter(path, l, f, info), nil
}

func newWriter(path string, l *Layout, f *os.File, info os.FileInfo) *Writer {
	return &Writer{f: newHandle(path, f, info, true), path: path, layout: l, written: make([]atomic.Int64, len(l.header.tensors))}
}

// Reopen opens an unfinished file of a writer of the same layout, to resume it. The caller
// counts the bytes already written with [Writer.Skip]. Reopen returns an error for a link, or
// if the size or the header differs.
func Reopen(path string, l *Layout) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = reset(path, l, f, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return newWriter(path, l, f, info), nil
}

// reset checks that the path is not a link and the file matches the layout, and marks the file as
// unfinished.
func reset(path string, l *Layout, f *os.File, info os.FileInfo) error {
	if named, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || !os.SameFile(info, named) {
		return &ContainerError{Path: path, Offset: -1, Problem: "a link, or not a regular file", Fix: "remove it"}
	}
	head := make([]byte, len(l.prefix)-lengthSize)
	if info.Size() == l.FileSize() {
		if err := readFull(f, head, lengthSize, path, ""); err != nil {
			return err
		}
	}
	if info.Size() != l.FileSize() || !l.fits(head, lengthSize) {
		return &ContainerError{Path: path, Offset: -1, Problem: "not the unfinished file: its size or header differs", Fix: "remove it"}
	}
	if _, err := f.WriteAt(make([]byte, lengthSize), 0); err != nil {
		return ioError(path, place("", 0), err)
	}
	return nil
}

// Skip counts n bytes of a tensor as written, by the writer before Reopen.
func (w *Writer) Skip(name string, n int64) {
	if i, ok := w.layout.byName[name]; ok {
		w.written[i].Add(n)
	}
}

// Sync flushes the written data to the disk. It is safe to call concurrently with
// WriteTensorAt.
func (w *Writer) Sync() error { return w.sync() }

// Suspend closes the unfinished file, for Reopen to resume.
func (w *Writer) Suspend() error {
	if w.closed {
		return nil
	}
	w.closed, w.done = true, true
	return w.f.Close()
}

// WriteTensorAt writes p into a tensor from offset off on. It returns an error, and writes
// nothing, unless [off, off+len(p)) is inside the tensor. It is safe for concurrent use. Write
// each byte exactly once; after an error, the same range may be written again.
func (w *Writer) WriteTensorAt(name string, p []byte, off int64) error {
	i, ok := w.layout.byName[name]
	if !ok {
		return fmt.Errorf("%s: tensor %s is not in the layout", w.path, limits.Quote(name))
	}
	t := w.layout.header.tensors[i]
	if err := checkRange(w.path, t, w.layout.dataSize(), len(p), off); err != nil {
		return err
	}
	at := int64(len(w.layout.prefix)) + t.Begin + off
	if n, err := w.f.WriteAt(p, at); err != nil {
		return ioError(w.path, place(name, at+int64(n)), err)
	}
	w.written[i].Add(int64(len(p)))
	return nil
}

// Close finishes the file. It checks that every byte of each tensor was written, syncs the
// data, writes the header's length, syncs again and closes the file. On error the unfinished
// file remains; Abort removes it. Close must not run concurrently with another method.
func (w *Writer) Close() error {
	if w.closed {
		return fmt.Errorf("%s: %w", w.path, os.ErrClosed)
	}
	w.closed = true
	err := w.finish()
	if closing := w.f.Close(); err == nil && closing != nil {
		err = ioError(w.path, "closing it", closing)
	}
	w.done = err == nil
	return err
}

func (w *Writer) finish() error {
	for i, t := range w.layout.header.tensors {
		if n := w.written[i].Load(); n != t.Bytes() {
			return fmt.Errorf("%s: tensor %s: %d of its %d bytes were written: write each exactly once", w.path, limits.Quote(t.Name), n, t.Bytes())
		}
	}
	if err := w.sync(); err != nil {
		return err
	}
	if _, err := w.f.WriteAt(w.layout.prefix[:lengthSize], 0); err != nil {
		return ioError(w.path, place("", 0), err)
	}
	return w.sync()
}

// sync flushes the written data to the disk. A full disk may be reported only here.
func (w *Writer) sync() error {
	if err := w.f.Sync(); err != nil {
		return ioError(w.path, "syncing it", err)
	}
	return nil
}

// Abort closes and removes the file. After a successful Close it does nothing, so it can be
// deferred. Abort must not run concurrently with another method.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if !w.closed {
		w.closed = true
		w.f.Close() // errors do not matter: the file is removed
	}
	return os.Remove(w.path)
}
