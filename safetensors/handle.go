package safetensors

import (
	"container/list"
	"errors"
	"os"
	"sync"
)

// maxOpen is the maximum number of files of readers and writers with an open descriptor,
// besides those in use. Checkpoints have up to a thousand files, and many systems allow a process
// 1024.
const maxOpen = 64

// A handle reads or writes a file whose descriptor may be closed and reopened between uses.
type handle struct {
	path   string
	opened os.FileInfo // as the file was first
	writes bool        // the file is open for writing

	f      *os.File // nil while it is closed
	users  int
	done   bool          // Close was called
	failed error         // the error of syncing the file before it was closed
	place  *list.Element // in handles.recent, while f is open
}

// handles lists the handles with an open descriptor.
var handles struct {
	sync.Mutex           // of the fields of all handles too
	recent     list.List // of *handle, the last used first
}

// newHandle returns the handle of an open file.
func newHandle(path string, f *os.File, info os.FileInfo, writes bool) *handle {
	h := &handle{path: path, opened: info, writes: writes}
	handles.Lock()
	defer handles.Unlock()
	h.keep(f)
	return h
}

// keep makes f the open file of h, and closes the least recently used file if there are too
// many.
func (h *handle) keep(f *os.File) {
	h.f, h.place = f, handles.recent.PushFront(h)
	for e := handles.recent.Back(); e != nil && handles.recent.Len() > maxOpen; {
		oldest, before := e.Value.(*handle), e.Prev()
		if oldest.users == 0 && oldest != h {
			if err := oldest.release(); oldest.writes {
				oldest.failed = err
			}
		}
		e = before
	}
}

// release closes the file. It syncs a written file first, since a sync through another
// descriptor may not report a failed write.
func (h *handle) release() error {
	handles.recent.Remove(h.place)
	f := h.f
	h.f, h.place = nil, nil
	if !h.writes || h.done {
		return f.Close()
	}
	return errors.Join(f.Sync(), f.Close())
}

// acquire returns the open file for one use. It returns an error if the path now leads to
// another file, or a file that is only read was modified.
func (h *handle) acquire() (*os.File, error) {
	handles.Lock()
	defer handles.Unlock()
	if h.done {
		return nil, &os.PathError{Op: "use", Path: h.path, Err: os.ErrClosed}
	}
	if h.failed != nil {
		return nil, h.failed
	}
	if h.f == nil {
		f, err := h.reopen()
		if err != nil {
			return nil, err
		}
		h.keep(f)
	}
	h.users++
	handles.recent.MoveToFront(h.place)
	return h.f, nil
}

// reopen opens the file again.
func (h *handle) reopen() (*os.File, error) {
	f, info, err := openRegular(h.path)
	if h.writes && err == nil {
		_ = f.Close() // nothing was written
		if f, err = os.OpenFile(h.path, os.O_RDWR, 0); err == nil {
			info, err = f.Stat()
		}
	}
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, h.opened) || info.Size() != h.opened.Size() || !h.writes && !info.ModTime().Equal(h.opened.ModTime()) {
		_ = f.Close() // nothing was written
		return nil, errChanged(h.path)
	}
	return f, nil
}

// use calls do with the open file.
func (h *handle) use(do func(*os.File) error) error {
	f, err := h.acquire()
	if err != nil {
		return err
	}
	err = do(f)
	handles.Lock()
	defer handles.Unlock()
	if h.users--; h.done && h.users == 0 {
		_ = h.release() // nothing was written
	}
	return err
}

// ReadAt implements io.ReaderAt.
func (h *handle) ReadAt(p []byte, off int64) (n int, err error) {
	err = h.use(func(f *os.File) error {
		n, err = f.ReadAt(p, off)
		return err
	})
	return n, err
}

// writebackBytes is the size of writes that the system starts to write to the disk at once, so that
// Sync waits for less. Smaller writes would share pages with others.
const writebackBytes = 1 << 18

// WriteAt implements io.WriterAt.
func (h *handle) WriteAt(p []byte, off int64) (n int, err error) {
	err = h.use(func(f *os.File) error {
		n, err = f.WriteAt(p, off)
		if n >= writebackBytes {
			startWriteback(f, off, int64(n))
		}
		return err
	})
	return n, err
}

// Sync flushes the written data to the disk.
func (h *handle) Sync() error { return h.use((*os.File).Sync) }

// Close closes the file after its current uses. It does not sync the file.
func (h *handle) Close() error {
	handles.Lock()
	defer handles.Unlock()
	if h.done {
		return &os.PathError{Op: "close", Path: h.path, Err: os.ErrClosed}
	}
	h.done = true
	if h.f == nil || h.users > 0 {
		return nil
	}
	return h.release()
}
