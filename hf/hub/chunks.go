package hub

import (
	"container/list"
	"slices"
	"sync"
)

// Files are fetched in chunks: a small one for the header, and then ones that keep
// a connection busy.
const (
	firstChunk = 512 << 10
	laterChunk = 8 << 20
	keptChunks = 10 // of all files of a checkpoint: 80 MiB
	mostAhead  = 8  // of all files of a checkpoint, that wait to be hashed: 64 MiB
)

// chunkOf returns the number of the chunk that has an offset.
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

// chunks are those that were fetched last, of the files that share them, and those
// that came before their turn to be hashed.
type chunks struct {
	lock  sync.Mutex
	kept  map[chunkKey]*list.Element // of *chunk
	order *list.List                 // the last used first
	ahead []early                    // the first that came first
}

// An early chunk waits until those before it in its file were hashed.
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

// get returns a chunk, and has the next one fetched where this one was read in its
// turn.
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

// begin returns a chunk that is kept, or begins to fetch it. The lock is held.
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

// hold keeps a chunk that came before its turn. Where too many wait, all of the file
// that has waited longest are given up, another than this one's.
func (k *chunks) hold(key chunkKey, data []byte) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if slices.ContainsFunc(k.ahead, func(e early) bool { return e.key == key }) {
		return // it was fetched twice
	}
	if i := slices.IndexFunc(k.ahead, func(e early) bool { return e.key.r != key.r }); len(k.ahead) >= mostAhead && i >= 0 {
		k.drop(k.ahead[i].key.r)
	}
	k.ahead = append(k.ahead, early{key, data})
}

// take returns a chunk that waits, and does not keep it any longer; nil where there
// is none.
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

// forget gives up the chunks of a file that wait.
func (k *chunks) forget(r *remote) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.drop(r)
}

// drop is forget where the lock is held.
func (k *chunks) drop(r *remote) {
	k.ahead = slices.DeleteFunc(k.ahead, func(e early) bool { return e.key.r == r })
}
