package safetensors

import (
	"container/list"
	"os"
	"sync"
)

// mostOpen is the maximum number of files from Open with an open descriptor, besides those
// being read. Checkpoints have up to a thousand files, and many systems allow a process 1024.
const mostOpen = 64

// A handle reads a file whose descriptor may be closed and reopened between reads.
type handle struct {
	path   string
	opened os.FileInfo // as the file was first

	f       *os.File // nil while it is closed
	readers int
	done    bool          // Close was called
	place   *list.Element // in handles.recent, while f is open
}

// handles lists the handles with an open descriptor.
var handles struct {
	sync.Mutex           // of the fields of all handles too
	recent     list.List // of *handle, the last used first
}

// newHandle returns the handle of an open file.
func newHandle(path string, f *os.File, info os.FileInfo) *handle {
	h := &handle{path: path, opened: info}
	handles.Lock()
	defer handles.Unlock()
	h.keep(f)
	return h
}

// keep makes f the open file of h, and closes the least recently used file if there are too
// many.
func (h *handle) keep(f *os.File) {
	h.f, h.place = f, handles.recent.PushFront(h)
	for e := handles.recent.Back(); e != nil && handles.recent.Len() > mostOpen; {
		oldest, before := e.Value.(*handle), e.Prev()
		if oldest.readers == 0 && oldest != h {
			_ = oldest.release() // nothing was written
		}
		e = before
	}
}

// release closes the file.
func (h *handle) release() error {
	handles.recent.Remove(h.place)
	f := h.f
	h.f, h.place = nil, nil
	return f.Close()
}

// acquire returns the open file for a reader. It returns an error if the path now leads to
// another file, or the file was modified.
func (h *handle) acquire() (*os.File, error) {
	handles.Lock()
	defer handles.Unlock()
	if h.done {
		return nil, &os.PathError{Op: "read", Path: h.path, Err: os.ErrClosed}
	}
	if h.f == nil {
		f, info, err := openRegular(h.path)
		if err != nil {
			return nil, err
		}
		if !os.SameFile(info, h.opened) || info.Size() != h.opened.Size() || !info.ModTime().Equal(h.opened.ModTime()) {
			_ = f.Close() // nothing was written
			return nil, errChanged(h.path)
		}
		h.keep(f)
	}
	h.readers++
	handles.recent.MoveToFront(h.place)
	return h.f, nil
}

// ReadAt implements io.ReaderAt.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	f, err := h.acquire()
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(p, off)
	handles.Lock()
	defer handles.Unlock()
	if h.readers--; h.done && h.readers == 0 {
		_ = h.release() // nothing was written
	}
	return n, err
}

// Close closes the file after the current reads.
func (h *handle) Close() error {
	handles.Lock()
	defer handles.Unlock()
	if h.done {
		return &os.PathError{Op: "close", Path: h.path, Err: os.ErrClosed}
	}
	h.done = true
	if h.f == nil || h.readers > 0 {
		return nil
	}
	return h.release()
}
