// Package parallel splits a range of independent items among goroutines, and starts goroutines
// for work that takes microseconds.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A call is one For in progress. Calls are pooled.
type call struct {
	body             func(from, to int)
	n, grain, ranges int
	next, done       atomic.Int64   // ranges taken and done
	inside           atomic.Int64   // goroutines that have not left the call
	complete         sync.WaitGroup // of the last range
	help             func()         // works, then leaves; run by the helpers
}

// PerThread is the number of tasks into which callers divide work for each thread, so that threads end together and fast
// processors take more of them.
const PerThread = 4

var calls = sync.Pool{New: func() any { return new(call) }}

// Threads returns the number of goroutines that threads means: one per processor if it is 0.
func Threads(threads int) int {
	if threads <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return threads
}

// RowGrain returns the grain of [For] over rows of the given width.
func RowGrain(width int) int {
	const elements = 1 << 14
	return max(1, elements/max(1, width))
}

// For calls body for sub-ranges [from, to) that cover [0, n) once. At most threads goroutines
// run at a time (0: one per processor); the caller is one of them. Sub-ranges start at multiples
// of grain. The effect of body must not depend on how the range is split.
func For(n, grain, threads int, body func(from, to int)) {
	grain = max(grain, 1)
	ranges := (n + grain - 1) / grain
	threads = min(Threads(threads), ranges)
	if threads <= 1 {
		if n > 0 {
			body(0, n)
		}
		return
	}
	c := calls.Get().(*call)
	if c.help == nil {
		c.help = func() {
			c.work()
			c.leave()
		}
	}
	c.body, c.n, c.grain, c.ranges = body, n, grain, ranges
	c.next.Store(0)
	c.done.Store(0)
	c.inside.Store(int64(threads))
	c.complete.Add(1)
	for range threads - 1 {
		Go(c.help)
	}
	c.work()
	// The remaining ranges are about to end. The helpers shall leave before the caller's next call.
	Poll(func() bool { return c.inside.Load() <= 1 })
	c.complete.Wait()
	c.leave()
}

// ForState is For with a body that takes its variables as a value, for work that is often too
// small to split: unlike a closure, state takes no memory from the heap unless it is.
func ForState[T any](n, grain, threads int, state T, body func(state T, from, to int)) {
	grain = max(grain, 1)
	if n > 0 && (n <= grain || Threads(threads) == 1) {
		body(state, 0, n)
		return
	}
	forClosure(n, grain, threads, state, body)
}

// forClosure is For with the closure that ForState avoids.
//
//go:noinline
func forClosure[T any](n, grain, threads int, state T, body func(state T, from, to int)) {
	For(n, grain, threads, func(from, to int) { body(state, from, to) })
}

// Poll calls ready until it returns true or about 200 µs have passed: for events that are about to
// happen, that is faster than sleeping. It reports whether the event has happened.
func Poll(ready func() bool) bool {
	const (
		patience = 1 << 17
		between  = 1 << 10 // yields, which take microseconds on a goroutine that is locked to its thread
	)
	for i := 1; i <= patience; i++ {
		if ready() {
			return true
		}
		if i%between == 0 {
			runtime.Gosched()
		}
	}
	return false
}

// work calls body until no range is left.
func (c *call) work() {
	for {
		i := int(c.next.Add(1)) - 1
		if i >= c.ranges {
			return
		}
		c.body(i*c.grain, min((i+1)*c.grain, c.n))
		if c.done.Add(1) == int64(c.ranges) {
			c.complete.Done()
		}
	}
}

// leave ends the part of a goroutine. The last one returns the call to the pool. A helper that
// starts late finds no range and nobody waits for it.
func (c *call) leave() {
	if c.inside.Add(-1) == 0 {
		c.body = nil
		calls.Put(c)
	}
}
