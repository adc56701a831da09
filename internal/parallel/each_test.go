package parallel

import (
	"sync/atomic"
	"testing"
)

// TestEachThreads checks that each number is given once, and the number of calls at a time.
func TestEachThreads(t *testing.T) {
	const n, atOnce = 100, 3
	var running, most, sum atomic.Int64
	Each(n, atOnce, func(i int) {
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		sum.Add(int64(i))
		running.Add(-1)
	})
	if most.Load() > atOnce || sum.Load() != n*(n-1)/2 {
		t.Errorf("got %d at once, sum %d", most.Load(), sum.Load())
	}
	Each(0, atOnce, func(int) { t.Error("called") })
}
