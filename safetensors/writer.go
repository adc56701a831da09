package safetensors

import (
	"fmt"
	"os"
	"sync/atomic"
)

// A Writer fills in a file that a [Layout] planned.
//
// Until Close succeeds, the first eight bytes are zero, which no reader accepts: the file of a
// killed writer is not mistaken for a finished one. To hide the unfinished file, write under a
// temporary name in the destination's directory, rename it after Close, and sync the
// directory. The Writer does none of these.
type Writer struct {
	f       *os.File
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
	w := &Writer{f: f, path: path, layout: l, written: make([]atomic.Int64, len(l.header.tensors))}
	// Set the full size first: if it is too large for the filesystem, fail before any work.
	if err := f.Truncate(l.FileSize()); err != nil {
		w.Abort()
		return nil, ioError(path, fmt.Sprintf("making the file %d bytes long", l.FileSize()), err)
	}
	if _, err := f.WriteAt(l.prefix[lengthSize:], lengthSize); err != nil {
		w.Abort()
		return nil, ioError(path, place("", lengthSize), err)
	}
	return w, nil
}

// Reopen opens an unfinished file of a writer of the same layout, to resume it. The caller
// counts the bytes already written with [Writer.Skip]. Reopen returns an error for a link, or
// if the size or the header differs.
func Reopen(path string, l *Layout) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	w := &Writer{f: f, path: path, layout: l, written: make([]atomic.Int64, len(l.header.tensors))}
	if err := w.named(); err != nil {
		f.Close()
		return nil, err
	}
	if err := w.reset(); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// named returns an error if the path is a link to the file, or not that of a regular file.
func (w *Writer) named() error {
	opened, err := w.f.Stat()
	if err != nil {
		return ioError(w.path, "asking what it is", err)
	}
	if named, err := os.Lstat(w.path); err != nil || !opened.Mode().IsRegular() || !os.SameFile(opened, named) {
		return &ContainerError{Path: w.path, Offset: -1, Problem: "this is a link, or no regular file", Fix: "remove it"}
	}
	return nil
}

// reset checks that the file matches the layout, and marks it as unfinished.
func (w *Writer) reset() error {
	info, err := w.f.Stat()
	if err != nil {
		return ioError(w.path, "asking for its size", err)
	}
	head := make([]byte, len(w.layout.prefix)-lengthSize)
	if info.Size() == w.layout.FileSize() {
		if err := readFull(w.f, head, lengthSize, w.path, ""); err != nil {
			return err
		}
	}
	if info.Size() != w.layout.FileSize() || !w.layout.fits(head, lengthSize) {
		return &ContainerError{Path: w.path, Offset: -1, Problem: "this is not the file that was left unfinished: its size or header is another", Fix: "remove it"}
	}
	if _, err := w.f.WriteAt(make([]byte, lengthSize), 0); err != nil {
		return ioError(w.path, place("", 0), err)
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
		return fmt.Errorf("%s: tensor %s is not in the layout", w.path, quote(name))
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
			return fmt.Errorf("%s: tensor %s: %d of its %d bytes were written: write each exactly once", w.path, quote(t.Name), n, t.Bytes())
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
