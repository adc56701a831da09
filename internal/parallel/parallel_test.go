package parallel_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/parallel"
)

// TestFor checks that every item is visited once, in sub-ranges that start at multiples of
// grain.
func TestFor(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 8, 9, 100, 1001} {
		for _, grain := range []int{-1, 0, 1, 3, 8, 1000, 5000} {
			for _, threads := range []int{0, 1, 2, 7, 64} {
				t.Run(fmt.Sprintf("n=%d/grain=%d/threads=%d", n, grain, threads), func(t *testing.T) {
					visits := make([]atomic.Int32, n)
					parallel.For(n, grain, threads, func(from, to int) {
						if from >= to || from%max(grain, 1) != 0 {
							t.Errorf("got sub-range [%d, %d)", from, to)
						}
						for i := from; i < to; i++ {
							visits[i].Add(1)
						}
					})
					for i := range visits {
						if got := visits[i].Load(); got != 1 {
							t.Fatalf("item %d: got %d visits, want 1", i, got)
						}
					}
				})
			}
		}
	}
}

// TestForThreads checks that exactly as many bodies as requested run at the same time.
func TestForThreads(t *testing.T) {
	const threads = 4
	var meeting sync.WaitGroup
	meeting.Add(threads)
	var running, most, started atomic.Int32
	parallel.For(100, 1, threads, func(_, _ int) {
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		if started.Add(1) <= threads { // the first ones wait for each other
			meeting.Done()
			meeting.Wait()
		}
		running.Add(-1)
	})
	if most.Load() != threads {
		t.Errorf("got %d concurrent bodies, want %d", most.Load(), threads)
	}
}

// TestForSlow checks that a goroutine on a slow processor keeps one sub-range, while the others take all that are left.
func TestForSlow(t *testing.T) {
	const ranges = 50
	rest := make(chan struct{})
	var taken atomic.Int32
	parallel.For(ranges, 1, 3, func(_, _ int) {
		switch taken.Add(1) {
		case 1: // the slow one
			select {
			case <-rest:
			case <-time.After(10 * time.Second):
				t.Error("the other goroutines left sub-ranges to the slow one")
			}
		case ranges:
			close(rest)
		}
	})
}

// TestForOneThread checks that one thread runs body once, in the caller's goroutine.
func TestForOneThread(t *testing.T) {
	calls := 0 // the race detector would see another goroutine
	parallel.For(10, 3, 1, func(from, to int) {
		calls++
		if from != 0 || to != 10 {
			t.Errorf("got sub-range [%d, %d), want [0, 10)", from, to)
		}
	})
	if calls != 1 {
		t.Errorf("got %d calls, want 1", calls)
	}
}

// TestPoll checks that polling ends with the event, or without it after a while, and allocates nothing.
func TestPoll(t *testing.T) {
	calls := 0
	if !parallel.Poll(func() bool { calls++; return calls == 3 }) || calls != 3 {
		t.Errorf("got the event after %d calls, want 3", calls)
	}
	if parallel.Poll(func() bool { return false }) {
		t.Error("got an event that never happens")
	}
	if got := testing.AllocsPerRun(10, func() { parallel.Poll(func() bool { calls++; return true }) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
