package hub

import (
	"container/list"
	"slices"
	"sync"
)

// Files are fetched in chunks: a small one for the header, then large ones for throughput.
const (
	firstChunk = 512 << 10
	laterChunk = 8 << 20
	keptChunks = 10 // for all files of a checkpoint: 80 MiB
	maxAhead   = 8  // chunks that wait to be hashed, for all files of a checkpoint: 64 MiB
)

// chunkOf returns the index of the chunk that contains an offset.
func chunkOf(off int64) int {
	if off < firstChunk {
		return 0
	}
	return 1 + int((off-firstChunk)/laterChunk)
}

// chunkRange returns the bytes of a chunk of a file of the given size.
func chunkRange(i int, size int64) (from, to int64) {
	if i == 0 {
		return 0, min(firstChunk, size)
	}
	from = firstChunk + int64(i-1)*laterChunk
	return from, min(from+laterChunk, size)
}

// chunks caches the most recently used chunks of several files, and holds chunks that arrived before
// their turn to be hashed.
type chunks struct {
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
	r *remote
	i int
}

type chunk struct {
	key   chunkKey
	ready chan struct{}
	data  []byte
	err   error
}

func newChunks() *chunks { return &chunks{kept: map[chunkKey]*list.Element{}, order: list.New()} }

// get returns a chunk. If chunks are read in order, it prefetches the next one.
func (k *chunks) get(r *remote, i int) ([]byte, error) {
	k.lock.Lock()
	_, sequential := k.kept[chunkKey{r, i - 1}]
	c := k.begin(r, i)
	if _, to := chunkRange(i, r.file.Size); sequential && to < r.file.Size {
		k.begin(r, i+1)
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
func (k *chunks) begin(r *remote, i int) *chunk {
	key := chunkKey{r, i}
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
		c.data, c.err = r.fetch(i)
		close(c.ready)
	}()
	return c
}

// hold keeps a chunk until its turn. If too many chunks wait, hold drops those of another file: the
// one that has waited longest.
func (k *chunks) hold(key chunkKey, data []byte) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if slices.ContainsFunc(k.ahead, func(e early) bool { return e.key == key }) {
		return // fetched twice
	}
	if i := slices.IndexFunc(k.ahead, func(e early) bool { return e.key.r != key.r }); len(k.ahead) >= maxAhead && i >= 0 {
		k.drop(k.ahead[i].key.r)
	}
	k.ahead = append(k.ahead, early{key, data})
}

// take removes and returns a waiting chunk, or returns nil.
func (k *chunks) take(key chunkKey) []byte {
	k.lock.Lock()
	defer k.lock.Unlock()
	i := slices.IndexFunc(k.ahead, func(e early) bool { return e.key == key })
	if i < 0 {
		return nil
	}
	data := k.ahead[i].data
	k.ahead = slices.Delete(k.ahead, i, i+1)
	return data
}

// forget drops the waiting chunks of a file.
func (k *chunks) forget(r *remote) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.drop(r)
}

// drop implements forget. The caller holds the lock.
func (k *chunks) drop(r *remote) {
	k.ahead = slices.DeleteFunc(k.ahead, func(e early) bool { return e.key.r == r })
}
