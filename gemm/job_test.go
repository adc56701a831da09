package gemm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/parallel"
)

// TestSlowThread checks that every thread of a product has several tasks, if there are as many tiles, that no task is without tiles, and
// that a thread on a slow processor keeps one while the others take all that are left.
func TestSlowThread(t *testing.T) {
	for _, k := range ordered {
		if k.vector != nil {
			continue
		}
		for _, m := range []int{1, 64, 100, 512, 4096} {
			for _, n := range []int{48, 250, 4096} {
				for _, threads := range []int{2, 8} {
					t.Run(fmt.Sprintf("kernel=%s/m=%d/n=%d/threads=%d", k.Name, m, n, threads), func(t *testing.T) {
						j := &job{plan: plan{kernel: k, m: m, n: n}, rows: extent{0, m}, cols: extent{0, n}, threads: threads}
						j.changed.L = &j.mutex
						mc, groups := j.split()
						tiles, blocks, total := j.tiles(), ceilDiv(m, mc), 0
						for i := range groups {
							if tiles*i/groups < tiles*(i+1)/groups {
								total += blocks
							}
						}
						if want := min(threads*parallel.PerThread, blocks*tiles); total < want {
							t.Fatalf("got %d tasks that have tiles, want %d", total, want)
						}
						if total != blocks*groups {
							t.Fatalf("%d of %d tasks have no tiles", blocks*groups-total, blocks*groups)
						}
						if total > 1 {
							takeOthers(t, j, total)
						}
					})
				}
			}
		}
	}
}

// takeOthers holds one task of a phase until the other threads have taken all other tasks.
func takeOthers(t *testing.T, j *job, total int) {
	t.Helper()
	if _, ok := j.take(0, total); !ok {
		t.Fatal("got no task")
	}
	var taken atomic.Int32
	var others sync.WaitGroup
	rest := make(chan struct{})
	for range j.threads - 1 {
		others.Go(func() {
			for _, ok := j.take(0, total); ok; _, ok = j.take(0, total) {
				if taken.Add(1) == int32(total-1) {
					close(rest)
				}
				j.finish(1, total)
			}
		})
	}
	select {
	case <-rest:
	case <-time.After(10 * time.Second):
		t.Error("the other threads left tasks to the slow one")
	}
	j.finish(1, total)
	others.Wait()
}
