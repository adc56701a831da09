package hub

import (
	"context"
	"strings"
	"testing"
)

// TestKept checks that a file that is read in order keeps a bounded number of chunks.
func TestKept(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no chunk is fetched
	const count = 4 * keptChunks
	f := file{Name: "model.safetensors", Size: firstChunk + (count-1)*laterChunk, Blob: strings.Repeat("0", 40)}
	r := (&Client{}).remote(ctx, Repository{}, commit, f)
	k := newChunks()
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
