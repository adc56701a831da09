package gemm

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSpans checks the order of tasks: those of a thread are contiguous, and a thread without tasks
// takes the second half of the longest span.
func TestSpans(t *testing.T) {
	s := spans(nil).divide(10, 2)
	var got []int
	for _, thread := range []int{1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1} {
		task, ok := s.take(thread)
		if !ok {
			task = -1
		}
		got = append(got, task)
	}
	if want := []int{5, 6, 0, 7, 8, 9, 3, 4, 1, 2, -1, -1}; !slices.Equal(got, want) {
		t.Errorf("got tasks %v, want %v", got, want)
	}
}

// TestSpansOnce checks that every task is taken once, also if some threads never arrive.
func TestSpansOnce(t *testing.T) {
	var s spans
	for _, tasks := range []int{0, 1, 3, 64, 500} {
		for _, x := range []struct{ threads, arrive int }{{1, 1}, {2, 1}, {4, 4}, {7, 2}} {
			s = s.divide(tasks, x.threads)
			times := make([]atomic.Int32, tasks)
			var running sync.WaitGroup
			for thread := range x.arrive {
				running.Go(func() {
					for i, ok := s.take(thread); ok; i, ok = s.take(thread) {
						times[i].Add(1)
					}
				})
			}
			running.Wait()
			for i := range times {
				if n := times[i].Load(); n != 1 {
					t.Fatalf("%d tasks, %d of %d threads: task %d was taken %d times, want 1", tasks, x.arrive, x.threads, i, n)
				}
			}
		}
	}
}
