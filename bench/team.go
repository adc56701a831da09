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
	arrived atomic.Int64
	pinned  bool
	procs   int  // of Go, before the team
	waits   bool // a thread of the team waits for goroutines: what it loses says nothing
}

// A member is one thread: what it is to run, and when it began and ended.
type member struct {
	work       chan func(worker int)
	done       chan struct{}
	thread     int
	pinned     bool
	start, end time.Time
	lost       time.Duration // of the time between, when the thread did not run
}

// Processors returns how many processors this process was given.
func Processors() int { return len(processors()) }

// NewTeam starts a team of threads on the first processors that this process
// was given. It fails where there are fewer.
//
// What starts goroutines of its own is measured on the first thread of the team.
// So that these goroutines are beside it, all threads of the process that are not
// of the team share the other processors of the team. Go counts the processors of one
// of these threads once a second, and would run so few threads at a time, unless it
// was told how many: it runs as many as before, and all of the team.
func NewTeam(threads int) (*Team, error) {
	list := processors()
	if threads < 1 || threads > len(list) {
		return nil, fmt.Errorf("cannot measure with %d threads: this process was given %d processors", threads, len(list))
	}
	t := &Team{members: make([]member, threads), pinned: true, procs: runtime.GOMAXPROCS(0)}
	runtime.GOMAXPROCS(max(t.procs, threads))
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
		await(&t.arrived, int64(len(t.members)))
		ran := threadTime()
		m.start = time.Now()
		f(worker)
		m.end = time.Now()
		m.lost = m.end.Sub(m.start) - (threadTime() - ran)
		m.done <- struct{}{}
	}
	pin(m.thread, processors()...)
	m.done <- struct{}{}
}

// await returns when n is at least as large as given. It keeps the processor, as
// the threads that it waits for are about to be there.
func await(n *atomic.Int64, least int64) {
	for spins := 1; n.Load() < least; spins++ {
		if spins%1024 == 0 {
			runtime.Gosched() // Go may run on fewer processors than there are threads
		}
	}
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
// everywhere again, as many at a time as before.
func (t *Team) Close() {
	for i := range t.members {
		close(t.members[i].work)
		<-t.members[i].done
	}
	t.keepOthers(processors())
	runtime.GOMAXPROCS(t.procs)
}

// Time runs f on every thread, with the thread's number, and returns the time
// from the start, which they make together, to the end of the last. It reports
// whether a thread of the team did not run for a good part of it.
func (t *Team) Time(f func(worker int)) (d time.Duration, disturbed bool) {
	t.arrived.Store(0)
	for i := range t.members {
		t.members[i].work <- f
	}
	for i := range t.members {
		<-t.members[i].done
	}
	start, end := t.members[0].start, t.members[0].end
	for i := range t.members {
		m := &t.members[i]
		if m.start.Before(start) {
			start = m.start
		}
		if m.end.After(end) {
			end = m.end
		}
		disturbed = disturbed || !t.waits && isDisturbed(m.lost, m.end.Sub(m.start))
	}
	return end.Sub(start), disturbed
}

// isDisturbed reports whether a thread that did not run for the time lost, of a time
// elapsed, was kept from its processor, and not by the error of clocks.
func isDisturbed(lost, elapsed time.Duration) bool {
	const share, clock = 50, 5 * time.Microsecond
	return lost > elapsed/share+clock
}

// MeasureAlone is Measure of what the first thread runs, with the goroutines
// that it starts beside it, while the others of the team have nothing to do.
func (t *Team) MeasureAlone(budget time.Duration, pass func(i int)) Sample {
	t.waits = len(t.members) > 1
	defer func() { t.waits = false }()
	return t.Measure(budget, func(worker, i int) {
		if worker == 0 {
			pass(i)
		}
	})
}

// share returns the part [from, to) of n items that a worker of the team takes.
func (t *Team) share(worker, n, grain int) (from, to int) {
	return part(worker, len(t.members), n, grain)
}

// part returns part i of n items in as many parts. Parts begin at multiples of
// grain.
func part(i, parts, n, grain int) (from, to int) {
	grains := (n + grain - 1) / grain
	at := func(i int) int { return min(grains*i/parts*grain, n) }
	return at(i), at(i + 1)
}
