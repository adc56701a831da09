package parallel

import (
	"fmt"
	"testing"
)

type marks struct{ seen []int }

func (m marks) mark(from, to int) {
	for i := from; i < to; i++ {
		m.seen[i]++
	}
}

// TestForState checks that ForState covers each range once, and takes no memory where one goroutine
// does all.
func TestForState(t *testing.T) {
	for _, n := range []int{0, 1, 7, 1000} {
		for _, threads := range []int{0, 1, 3} {
			for _, grain := range []int{0, 1, 64, 2000} {
				t.Run(fmt.Sprintf("n=%d/threads=%d/grain=%d", n, threads, grain), func(t *testing.T) {
					m := marks{make([]int, n)}
					ForState(n, grain, threads, m, marks.mark)
					for i, times := range m.seen {
						if times != 1 {
							t.Fatalf("item %d: got %d times, want 1", i, times)
						}
					}
				})
			}
		}
	}
	m := marks{make([]int, 10)}
	if got := testing.AllocsPerRun(100, func() { ForState(10, 10, 2, m, marks.mark) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
