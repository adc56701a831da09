package parallel

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/slow"
)

// TestGoReuses checks that a goroutine that waits for work runs the next function, so that no
// goroutine starts and nothing is allocated.
func TestGoReuses(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("workers wait only beside another processor")
	}
	var ran sync.WaitGroup
	f := ran.Done
	reused := 0
	for range 1000 {
		ran.Add(1)
		Go(f)
		ran.Wait()
		for range 1000 { // until the worker waits
			runtime.Gosched()
			if waiting() > 0 {
				reused++
				break
			}
		}
	}
	if reused < 100 {
		t.Errorf("got %d of 1000 functions whose worker waited for the next one", reused)
	}
}

// TestGoEnds checks that workers do not spin for long without work.
func TestGoEnds(t *testing.T) {
	var ran sync.WaitGroup
	ran.Add(1)
	Go(ran.Done)
	ran.Wait()
	const patience = 5 * time.Second
	for start := time.Now(); waiting() > 0; time.Sleep(linger) {
		if time.Since(start) > patience {
			t.Fatalf("got %d workers that wait %v after the last function", waiting(), patience)
		}
	}
}

// TestGoLimit checks that fewer workers wait than there are processors.
func TestGoLimit(t *testing.T) {
	for range 20 {
		var ran sync.WaitGroup
		for range 4 * runtime.GOMAXPROCS(0) {
			ran.Add(1)
			Go(ran.Done)
		}
		ran.Wait()
		if n := waiting(); n >= runtime.GOMAXPROCS(0) {
			t.Fatalf("got %d workers that wait beside %d processors", n, runtime.GOMAXPROCS(0))
		}
	}
}

// TestAllocations checks that calls one after the other allocate nothing, whether their
// workers wait for the next call or, on one processor, end with each.
func TestAllocations(t *testing.T) {
	slow.Race(t, slow.Allocations)
	for _, processors := range []int{1, 2} {
		t.Run(fmt.Sprintf("processors=%d", processors), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			body := func(_, _ int) { busy(5 * time.Microsecond) }
			const calls, rounds = 1000, 4 // the first warms up; AllocsPerRun would leave one processor
			got := uint64(math.MaxUint64)
			for range rounds {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range calls {
					For(4, 1, 2, body)
					busy(5 * time.Microsecond)
				}
				runtime.ReadMemStats(&after)
				got = min(got, after.Mallocs-before.Mallocs)
			}
			if got > calls/10 {
				t.Errorf("got %d allocations in %d calls, want 0", got, calls)
			}
		})
	}
}

func busy(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

func waiting() int {
	idle.Lock()
	defer idle.Unlock()
	return len(idle.workers)
}

func BenchmarkFor(b *testing.B) {
	var sums [2]int
	body := func(from, _ int) { sums[from]++ }
	for b.Loop() {
		For(len(sums), 1, 2, body)
	}
}
