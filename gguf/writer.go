package gguf

import (
	"fmt"
	"os"
	"sync/atomic"
)

// A Writer fills in a file that a [Layout] planned. Until Close has succeeded the
// first bytes are zero, which no reader accepts, so a file whose writer was killed
// does not pass for a finished one.
type Writer struct {
	f       *os.File
	path    string
	layout  *Layout
	written []atomic.Int64 // bytes by tensor, in the layout's order
	closed  bool
	done    bool // Close succeeded
}

// Create makes a file of the layout's size. A file that exists is left alone and
// is an error that [errors.Is] knows as [os.ErrExist]. When Create fails it leaves
// no file.
func Create(path string, l *Layout) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	w := &Writer{f: f, path: path, layout: l, written: make([]atomic.Int64, len(l.header.Tensors))}
	if err := f.Truncate(l.size); err != nil {
		_ = w.Abort() // the error is that of before
		return nil, ioError(path, fmt.Sprintf("making the file %d bytes long", l.size), err)
	}
	if _, err := f.WriteAt(l.prefix[len(Magic):], int64(len(Magic))); err != nil {
		_ = w.Abort() // the error is that of before
		return nil, ioError(path, "header", err)
	}
	return w, nil
}

// WriteTensorAt writes p into a tensor, starting off bytes into it. It fails, and
// writes nothing, when [off, off+len(p)) is not inside the tensor. Several
// goroutines may write at once. Each byte is to be written exactly once; after an
// error the same range may be written again.
func (w *Writer) WriteTensorAt(name string, p []byte, off int64) error {
	i, ok := w.layout.byName[name]
	if !ok {
		return fmt.Errorf("%s: tensor %s is not in the layout", w.path, quote(name))
	}
	t := w.layout.header.Tensors[i]
	if err := checkRange(w.path, t, len(p), off); err != nil {
		return err
	}
	at := int64(len(w.layout.prefix)) + t.Begin + off
	if n, err := w.f.WriteAt(p, at); err != nil {
		return ioError(w.path, fmt.Sprintf("tensor %s: byte %d", quote(name), at+int64(n)), err)
	}
	w.written[i].Add(int64(len(p)))
	return nil
}

// Close finishes the file: it checks that as many bytes were written to each
// tensor as it has, syncs the data, writes the first bytes, syncs again and
// closes. When it fails the file is unfinished and still there; Abort removes it.
// Close must not run beside another method.
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
	for i, t := range w.layout.header.Tensors {
		if n := w.written[i].Load(); n != t.Bytes() {
			return fmt.Errorf("%s: tensor %s: %d of its %d bytes were written: write each exactly once", w.path, quote(t.Name), n, t.Bytes())
		}
	}
	if err := w.f.Sync(); err != nil {
		return ioError(w.path, "syncing it", err)
	}
	if _, err := w.f.WriteAt([]byte(Magic), 0); err != nil {
		return ioError(w.path, "header", err)
	}
	if err := w.f.Sync(); err != nil {
		return ioError(w.path, "syncing it", err)
	}
	return nil
}

// Abort closes and removes the file. After a Close that succeeded it does nothing,
// so it can be deferred. Abort must not run beside another method.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if !w.closed {
		w.closed = true
		w.f.Close() // the file goes away: nothing in it can be lost
	}
	return os.Remove(w.path)
}
