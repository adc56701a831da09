package gemm

import (
	"sync"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/parallel"
)

// phases distributes the tasks of a job. Every thread runs the same phases in the same order.
// It takes tasks of a phase until none is left, then waits until all are done. A thread that
// arrives late skips the completed phases: nobody waits for a thread, only for tasks.
type phases struct {
	current atomic.Int64 // phase in progress
	mutex   sync.Mutex
	changed sync.Cond // signals a change of current
	next    int       // next task to take
	done    int       // tasks done
}

// begin restarts at phase 0.
func (p *phases) begin() {
	p.current.Store(0)
	p.next, p.done = 0, 0
}

// take returns a task of the phase, which has total tasks. When all are done it returns false,
// and the phase is over.
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
	p.await(phase)
	return 0, false
}

// await returns when the phase is over.
func (p *phases) await(phase int64) {
	if parallel.Poll(func() bool { return p.current.Load() > phase }) { // the remaining tasks are about to end
		return
	}
	p.mutex.Lock()
	for p.current.Load() == phase {
		p.changed.Wait()
	}
	p.mutex.Unlock()
}

// finish marks n tasks as done.
func (p *phases) finish(n, total int) {
	p.mutex.Lock()
	if p.done += n; p.done == total {
		p.next, p.done = 0, 0
		p.current.Add(1)
		p.changed.Broadcast()
	}
	p.mutex.Unlock()
}
