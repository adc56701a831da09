// Package parallel splits a range of independent items among goroutines.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// For calls body for sub-ranges [from, to) that cover [0, n) once. At most threads goroutines
// run at a time (0: one per processor). Sub-ranges start at multiples of grain. The effect of
// body must not depend on how the range is split.
func For(n, grain, threads int, body func(from, to int)) {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	grain = max(grain, 1)
	ranges := (n + grain - 1) / grain
	threads = min(threads, ranges)
	if threads <= 1 {
		if n > 0 {
			body(0, n)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= ranges {
					return
				}
				body(i*grain, min((i+1)*grain, n))
			}
		})
	}
	wg.Wait()
}
