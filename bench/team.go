package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// A Team is threads of the operating system, each on one processor.
type Team struct {
	members []member
	arrived atomic.Int32
	pinned  bool
}

// A member is one thread: what it is to run, and when it began and ended.
type member struct {
	work       chan func(worker int)
	done       chan struct{}
	thread     int
	pinned     bool
	start, end time.Time
}

// Processors returns how many processors this process was given.
func Processors() int { return len(processors()) }

// NewTeam starts a team of threads on the first processors that this process
// was given. It fails where there are fewer.
//
// What starts goroutines of its own is measured on the first thread of the team.
// So that these goroutines are beside it, all threads of the process that are not
// of the team share the other processors of the team.
func NewTeam(threads int) (*Team, error) {
	list := processors()
	if threads < 1 || threads > len(list) {
		return nil, fmt.Errorf("cannot measure with %d threads: this process was given %d processors", threads, len(list))
	}
	t := &Team{members: make([]member, threads), pinned: true}
	for i := range t.members {
		m := &t.members[i]
		m.work, m.done = make(chan func(int)), make(chan struct{})
		go t.serve(i, list[i])
		<-m.done
		t.pinned = t.pinned && m.pinned
	}
	if threads > 1 {
		t.keepOthers(list[1:threads])
	}
	return t, nil
}

// serve is a member: it runs what the team is given until there is no more.
func (t *Team) serve(worker, processor int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := &t.members[worker]
	m.thread = thread()
	m.pinned = pin(m.thread, processor)
	m.done <- struct{}{}
	for f := range m.work {
		t.arrived.Add(1)
		for spins := 1; t.arrived.Load() < int32(len(t.members)); spins++ {
			if spins%1024 == 0 {
				runtime.Gosched() // Go may run on fewer processors than there are threads
			}
		}
		m.start = time.Now()
		f(worker)
		m.end = time.Now()
		m.done <- struct{}{}
	}
	pin(m.thread, processors()...)
	m.done <- struct{}{}
}

// keepOthers keeps the threads of the process that are not of the team on some
// processors.
func (t *Team) keepOthers(processors []int) {
	var team []int
	for i := range t.members {
		team = append(team, t.members[i].thread)
	}
	for _, id := range others(team) {
		pin(id, processors...) // it may have ended
	}
}

// Threads returns the size of the team.
func (t *Team) Threads() int { return len(t.members) }

// Pinned reports whether every thread is kept on one processor.
func (t *Team) Pinned() bool { return t.pinned }

// Close ends the threads of the team, and lets those of the process run
// everywhere again.
func (t *Team) Close() {
	for i := range t.members {
		close(t.members[i].work)
		<-t.members[i].done
	}
	t.keepOthers(processors())
}

// Time runs f on every thread, with the thread's number, and returns the time
// from the start, which they make together, to the end of the last.
func (t *Team) Time(f func(worker int)) time.Duration {
	t.arrived.Store(0)
	for i := range t.members {
		t.members[i].work <- f
	}
	for i := range t.members {
		<-t.members[i].done
	}
	start, end := t.members[0].start, t.members[0].end
	for i := range t.members {
		if m := &t.members[i]; m.start.Before(start) {
			start = m.start
		}
		if m := &t.members[i]; m.end.After(end) {
			end = m.end
		}
	}
	return end.Sub(start)
}

// alone returns a pass that the first thread runs, with the goroutines that it
// starts, while the others of the team wait.
func alone(pass func(i int)) func(worker, i int) {
	return func(worker, i int) {
		if worker == 0 {
			pass(i)
		}
	}
}

// share returns the part [from, to) of n items that a worker of the team takes.
// Parts begin at multiples of grain.
func (t *Team) share(worker, n, grain int) (from, to int) {
	pieces := (n + grain - 1) / grain
	at := func(w int) int { return min(pieces*w/len(t.members)*grain, n) }
	return at(worker), at(worker + 1)
}
