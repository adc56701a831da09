package comm

import (
	"slices"
	"sync"

	"github.com/microscale-go/microscale/internal/memory"
)

// buffers holds the memory of messages that are complete. Later messages reuse it: fresh memory
// costs a page fault for every page.
type buffers struct {
	mu   sync.Mutex
	free [][]float32
}

// maxBuffers is the maximum number of free buffers. put drops the oldest first: sizes that do not recur.
const maxBuffers = 64

// take returns n floats with arbitrary values.
func (b *buffers) take(n int) []float32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.free, func(x []float32) bool { return cap(x) >= n && cap(x) <= 2*n })
	if i < 0 {
		return make([]float32, n)
	}
	x := b.free[i]
	b.free = slices.Delete(b.free, i, i+1)
	return x[:n]
}

// put adds buffers that are no longer in use.
func (b *buffers) put(list ...[]float32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, list...)
	if n := len(b.free) - maxBuffers; n > 0 {
		b.free = slices.Delete(b.free, 0, n)
	}
}

// A lease is the buffers of one operation.
type lease struct {
	buffers *buffers
	taken   [][]float32
}

// floats returns n floats with arbitrary values.
func (l *lease) floats(n int) []float32 {
	x := l.buffers.take(n)
	l.taken = append(l.taken, x)
	return x
}

// bytes returns n bytes with arbitrary values.
func (l *lease) bytes(n int) []byte {
	return memory.Bytes(l.floats((n + 3) / 4))[:n]
}

// end returns all buffers.
func (l *lease) end() { l.buffers.put(l.taken...) }
