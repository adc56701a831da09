package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A worker is a goroutine that runs functions of Go. Between two functions it polls for the next
// one, because waking a goroutine on another processor takes as long as a small product. It ends
// when none arrives for the time linger, or when something else needs its processor.
type worker struct {
	task  func()
	given atomic.Bool // task is the next function
	run   func()      // runs task and its successors; the goroutine
}

const (
	linger = 200 * time.Microsecond // more than the serial work between two products of a model
	pause  = time.Millisecond       // a worker that did not run for this long shares its processor
	polls  = 64                     // of given, between two readings of the clock
)

var idle struct {
	sync.Mutex
	workers []*worker
}

// ended holds the workers whose goroutines have ended, so that the next goroutine takes no memory
// from the heap: on a busy machine most calls of Go start one.
var ended sync.Pool

// Go runs f on another goroutine: one that waits for work if there is one, otherwise a new one.
func Go(f func()) {
	idle.Lock()
	n := len(idle.workers) - 1
	if n < 0 {
		idle.Unlock()
		start(f)
		return
	}
	w := idle.workers[n]
	idle.workers = idle.workers[:n]
	idle.Unlock()
	w.task = f
	w.given.Store(true)
}

// start runs f and its successors on a new goroutine.
func start(f func()) {
	w, _ := ended.Get().(*worker)
	if w == nil {
		w = &worker{}
		w.run = func() {
			for f := w.task; f != nil; f = w.wait() {
				f()
			}
			w.task = nil
			ended.Put(w)
		}
	}
	w.task = f
	go w.run()
}

// wait returns the next function, or nil if the worker is to end.
func (w *worker) wait() (f func()) {
	idle.Lock()
	if len(idle.workers) >= runtime.GOMAXPROCS(0)-1 { // one processor is the caller's
		idle.Unlock()
		return nil
	}
	idle.workers = append(idle.workers, w)
	idle.Unlock()
	start := time.Now()
	last := start
	for i := 1; !w.given.Load(); i++ {
		if i%polls != 0 {
			continue
		}
		runtime.Gosched()
		now := time.Now()
		if (now.Sub(start) > linger || now.Sub(last) > pause) && w.withdraw() {
			return nil
		}
		last = now
	}
	f, w.task = w.task, nil
	w.given.Store(false)
	return f
}

// withdraw removes w from the idle workers. It returns false if Go has already chosen w.
func (w *worker) withdraw() bool {
	idle.Lock()
	defer idle.Unlock()
	for i, other := range idle.workers {
		if other == w {
			idle.workers = append(idle.workers[:i], idle.workers[i+1:]...)
			return true
		}
	}
	return false
}
