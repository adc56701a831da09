package parallel

import "sync"

// Each calls f for the numbers from 0 to n−1, at most atOnce at a time, and returns when all calls have: f waits for servers.
func Each(n, atOnce int, f func(i int)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	running.Wait()
}
