package gemm

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// phases deals out the tasks of a job. Every thread walks through the same
// phases in the same order, and takes tasks of each until none is left and all
// are done; then the next phase begins for all. A thread that comes late passes
// through the phases that are over, so that nobody waits for a thread, but only
// for tasks.
type phases struct {
	current atomic.Int64 // the phase under way
	mutex   sync.Mutex
	changed sync.Cond // current
	next    int       // task to take
	done    int       // tasks
}

// patience is how often a thread asks for what others are about to do, before it
// sleeps or goes on without.
const patience = 1 << 10

// begin starts again from phase 0.
func (p *phases) begin() {
	p.current.Store(0)
	p.next, p.done = 0, 0
}

// take returns a task of the phase, which has total of them. When all are done
// it returns false, and the phase is over.
func (p *phases) take(phase int64, total int) (task int, ok bool) {
	if p.current.Load() > phase {
		return 0, false
	}
	p.mutex.Lock()
	if p.current.Load() == phase && p.next < total {
		task = p.next
		p.next++
		p.mutex.Unlock()
		return task, true
	}
	p.mutex.Unlock()

	// The others are about to end: asking for a while is faster than sleeping.
	for range patience {
		if p.current.Load() > phase {
			return 0, false
		}
		runtime.Gosched()
	}
	p.mutex.Lock()
	for p.current.Load() == phase {
		p.changed.Wait()
	}
	p.mutex.Unlock()
	return 0, false
}

// finish ends a task that take returned.
func (p *phases) finish(total int) {
	p.mutex.Lock()
	if p.done++; p.done == total {
		p.next, p.done = 0, 0
		p.current.Add(1)
		p.changed.Broadcast()
	}
	p.mutex.Unlock()
}
