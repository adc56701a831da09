package ranges

import (
	"container/list"
	"slices"
	"sync"
)

// Files are fetched in chunks: a small one for the header, then large ones for throughput.
const (
	FirstChunk = 512 << 10
	LaterChunk = 8 << 20
	keptChunks = 10 // for all files of a checkpoint: 80 MiB
	MaxAhead   = 8  // chunks that wait to be hashed, for all files of a checkpoint: 64 MiB
)

// ChunkOf returns the index of the chunk that contains an offset.
func ChunkOf(off int64) int {
	if off < FirstChunk {
		return 0
	}
	return 1 + int((off-FirstChunk)/LaterChunk)
}

// ChunkRange returns the bytes of a chunk of a file of the given size.
func ChunkRange(i int, size int64) (from, to int64) {
	if i == 0 {
		return 0, min(FirstChunk, size)
	}
	from = FirstChunk + int64(i-1)*LaterChunk
	return from, min(from+LaterChunk, size)
}

// Chunks caches the most recently used chunks of several files, and holds chunks that arrived before
// their turn to be hashed.
type Chunks struct {
	lock  sync.Mutex
	kept  map[chunkKey]*list.Element // of *chunk
	order *list.List                 // the most recently used first
	ahead []early                    // in order of arrival
}

// An early chunk waits until the chunks before it in its file were hashed.
type early struct {
	key  chunkKey
	data []byte
}

type chunkKey struct {
	f *File
	i int
}

type chunk struct {
	key   chunkKey
	ready chan struct{}
	data  []byte
	err   error
}

// NewChunks returns an empty cache.
func NewChunks() *Chunks { return &Chunks{kept: map[chunkKey]*list.Element{}, order: list.New()} }

// get returns a chunk. If chunks are read in order, it prefetches the next one.
func (k *Chunks) get(f *File, i int) ([]byte, error) {
	k.lock.Lock()
	_, sequential := k.kept[chunkKey{f, i - 1}]
	c := k.begin(f, i)
	if _, to := ChunkRange(i, f.Size); sequential && to < f.Size {
		k.begin(f, i+1)
		k.order.MoveToFront(k.kept[c.key])
	}
	k.lock.Unlock()
	<-c.ready
	if c.err != nil {
		k.lock.Lock()
		if e, ok := k.kept[c.key]; ok && e.Value == c {
			k.order.Remove(e)
			delete(k.kept, c.key)
		}
		k.lock.Unlock()
	}
	return c.data, c.err
}

// begin returns a cached chunk, or starts to fetch it. The caller holds the lock.
func (k *Chunks) begin(f *File, i int) *chunk {
	key := chunkKey{f, i}
	if e, ok := k.kept[key]; ok {
		k.order.MoveToFront(e)
		return e.Value.(*chunk)
	}
	c := &chunk{key: key, ready: make(chan struct{})}
	k.kept[key] = k.order.PushFront(c)
	for k.order.Len() > keptChunks {
		last := k.order.Back()
		k.order.Remove(last)
		delete(k.kept, last.Value.(*chunk).key)
	}
	go func() {
		c.data, c.err = f.fetch(i)
		close(c.ready)
	}()
	return c
}

// Waiting returns the number of chunks that wait to be hashed.
func (k *Chunks) Waiting() int {
	k.lock.Lock()
	defer k.lock.Unlock()
	return len(k.ahead)
}

// Hold keeps a chunk until its turn. If too many chunks wait, Hold drops those of another file: the
// one that has waited longest.
func (k *Chunks) Hold(f *File, i int, data []byte) {
	key := chunkKey{f, i}
	k.lock.Lock()
	defer k.lock.Unlock()
	if slices.ContainsFunc(k.ahead, func(e early) bool { return e.key == key }) {
		return // fetched twice
	}
	if at := slices.IndexFunc(k.ahead, func(e early) bool { return e.key.f != f }); len(k.ahead) >= MaxAhead && at >= 0 {
		k.drop(k.ahead[at].key.f)
	}
	k.ahead = append(k.ahead, early{key, data})
}

// Take removes and returns a waiting chunk, or returns nil.
func (k *Chunks) Take(f *File, i int) []byte {
	key := chunkKey{f, i}
	k.lock.Lock()
	defer k.lock.Unlock()
	at := slices.IndexFunc(k.ahead, func(e early) bool { return e.key == key })
	if at < 0 {
		return nil
	}
	data := k.ahead[at].data
	k.ahead = slices.Delete(k.ahead, at, at+1)
	return data
}

// Forget drops the waiting chunks of a file.
func (k *Chunks) Forget(f *File) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.drop(f)
}

// drop implements Forget. The caller holds the lock.
func (k *Chunks) drop(f *File) {
	k.ahead = slices.DeleteFunc(k.ahead, func(e early) bool { return e.key.f == f })
}
