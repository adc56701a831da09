package ranges

import (
	"context"
	"testing"
)

// TestKept checks that a file that is read in order keeps a bounded number of chunks.
func TestKept(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no chunk is fetched
	const count = 4 * keptChunks
	r := &File{Context: ctx, Name: "model.safetensors", Size: FirstChunk + (count-1)*LaterChunk,
		Request: func([]byte, int64) (int, error) { return 0, ctx.Err() }}
	k := NewChunks()
	for i := range count {
		k.lock.Lock()
		c := k.begin(r, i)
		if len(k.kept) != k.order.Len() || len(k.kept) > keptChunks || k.begin(r, i) != c {
			t.Fatalf("chunk %d: %d are kept, %d in order", i, len(k.kept), k.order.Len())
		}
		k.lock.Unlock()
		<-c.ready
	}
}
