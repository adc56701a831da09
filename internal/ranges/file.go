package ranges

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
)

// A File reads a file of a server. Its methods are safe for concurrent use, its fields must not change after the
// first read.
type File struct {
	Context context.Context // of the requests: ReadAt has none
	Name    string          // used in errors
	Size    int64           // bytes
	Chunks  *Chunks
	Retry   Retry

	// Request fills p from an offset with one request, and returns the number of bytes received.
	Request func(p []byte, off int64) (int, error)

	// Arrived gets each chunk that a request completed and that does not differ from an earlier one. It may be nil.
	Arrived func(i int, data []byte) error

	lock    sync.Mutex
	digests map[int]uint64 // of each chunk at its first fetch
	damage  error          // set if a chunk differs from an earlier fetch
}

// digestSeed is the key of the digests, so that a server cannot construct collisions.
var digestSeed = maphash.MakeSeed()

// ReadAt implements [io.ReaderAt].
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: negative offset: %d", f.Name, off)
	}
	for n < len(p) {
		if off >= f.Size {
			return n, io.EOF
		}
		i := ChunkOf(off)
		data, err := f.Chunks.get(f, i)
		if err != nil {
			return n, err
		}
		from, _ := ChunkRange(i, f.Size)
		copied := copy(p[n:], data[off-from:])
		n, off = n+copied, off+int64(copied)
	}
	return n, nil
}

// fetch returns a chunk from the server.
func (f *File) fetch(i int) ([]byte, error) {
	from, to := ChunkRange(i, f.Size)
	data := make([]byte, to-from)
	got := 0
	err := f.Retry.Do(f.Context, f.Name, func() (bool, error) {
		n, err := f.Request(data[got:], from+int64(got))
		got += n
		if err == nil && got < len(data) {
			err = io.ErrUnexpectedEOF
		}
		return n > 0, err
	})
	if err != nil {
		return nil, err
	}
	if err := f.compare(i, data); err != nil || f.Arrived == nil {
		return data, err
	}
	return data, f.Arrived(i, data)
}

// compare compares a chunk with its earlier fetch, if any. A chunk that left the cache is fetched again, for
// example in the second pass of a conversion. It must then have the same bytes as before.
func (f *File) compare(i int, data []byte) error {
	digest := maphash.Bytes(digestSeed, data)
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.digests == nil {
		f.digests = map[int]uint64{}
	}
	if first, again := f.digests[i]; again && first != digest {
		from, to := ChunkRange(i, f.Size)
		if f.damage == nil {
			f.damage = &SubjectError{f.Name, fmt.Errorf("bytes %d to %d differ from an earlier read: one of the two was damaged in transfer; "+
				"run again", from, to-1)}
		}
		return f.damage
	}
	f.digests[i] = digest
	return nil
}

// Changed returns an error if a chunk differed from an earlier read of it.
func (f *File) Changed() error {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.damage
}
