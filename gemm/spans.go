package gemm

import (
	"sync/atomic"
)

// spans distributes the tasks of a phase so that those of a thread are contiguous: what a kernel
// prefetches past the end of a task is then read by the same core. Each thread starts with an
// equal span and takes its tasks in order. A thread that has none left takes the second half of the
// longest remaining span, so that a thread that starts late delays no other.
type spans []span

// A span holds the tasks first … end-1 as first<<32 | end. The padding keeps the spans of two
// threads out of one cache line.
type span struct {
	tasks atomic.Uint64
	_     [56]byte
}

func (s *span) set(first, end int) { s.tasks.Store(uint64(first)<<32 | uint64(end)) }

func bounds(tasks uint64) (first, end int) { return int(tasks >> 32), int(uint32(tasks)) }

// divide returns the spans of a number of tasks for a number of threads, in the memory of s.
func (s spans) divide(tasks, threads int) spans {
	grow((*[]span)(&s), threads)
	s = s[:threads]
	for i := range s {
		s[i].set(tasks*i/threads, tasks*(i+1)/threads)
	}
	return s
}

// take returns the next task of a thread, or false if none is left for it.
func (s spans) take(thread int) (task int, ok bool) {
	for own := &s[thread].tasks; ; {
		tasks := own.Load()
		first, end := bounds(tasks)
		if first == end {
			return s.steal(thread)
		}
		if own.CompareAndSwap(tasks, tasks+1<<32) {
			return first, true
		}
	}
}

// steal moves the second half of the longest span to that of a thread, which is empty, and takes its
// first task.
func (s spans) steal(thread int) (task int, ok bool) {
	for {
		longest, victim, tasks := 0, 0, uint64(0)
		for i := range s {
			t := s[i].tasks.Load()
			if first, end := bounds(t); end-first > longest {
				longest, victim, tasks = end-first, i, t
			}
		}
		if longest == 0 {
			return 0, false
		}
		first, end := bounds(tasks)
		middle := first + longest/2
		if s[victim].tasks.CompareAndSwap(tasks, uint64(first)<<32|uint64(middle)) {
			s[thread].set(middle+1, end)
			return middle, true
		}
	}
}
