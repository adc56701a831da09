package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
)

// A Team is a set of operating system threads, each pinned to one processor.
type Team struct {
	members []member
	arrived atomic.Int64
	pinned  bool
	procs   int  // GOMAXPROCS before the team
	waits   bool // a thread of the team waits for goroutines: its idle time is no disturbance
}

// A member is one thread of a team and the times of its last run.
type member struct {
	work       chan func(worker int)
	done       chan struct{}
	thread     int
	pinned     bool
	start, end time.Time
	lost       time.Duration // part of that time during which the thread did not run
}

// Processors returns the number of processors available to this process.
func Processors() int { return len(host.Processors()) }

// NewTeam starts a team of threads on the first available processors. It returns an error if
// there are fewer processors than threads.
//
// The first thread runs work that starts goroutines. These goroutines run on the other
// processors of the team, to which NewTeam pins all other threads of the process. Once a
// second, the Go runtime lowers GOMAXPROCS to the processors of one of these threads unless it
// was set explicitly. NewTeam therefore sets it, to at least the size of the team.
func NewTeam(threads int) (*Team, error) {
	list := host.Processors()
	if threads < 1 || threads > len(list) {
		return nil, fmt.Errorf("threads: got %d, want 1 to %d, the processors available to this process", threads, len(list))
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

// serve runs the functions that the team sends to a member, until Close.
func (t *Team) serve(worker, processor int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := &t.members[worker]
	m.thread = host.Thread()
	m.pinned = host.Pin(m.thread, processor)
	m.done <- struct{}{}
	for f := range m.work {
		t.arrived.Add(1)
		await(&t.arrived, int64(len(t.members)))
		ran := host.ThreadTime()
		m.start = time.Now()
		f(worker)
		m.end = time.Now()
		m.lost = m.end.Sub(m.start) - (host.ThreadTime() - ran)
		m.done <- struct{}{}
	}
	host.Pin(m.thread, host.Processors()...)
	m.done <- struct{}{}
}

// await spins until n is at least min: the threads that it waits for are about to arrive.
func await(n *atomic.Int64, min int64) {
	for spins := 1; n.Load() < min; spins++ {
		if spins%1024 == 0 {
			runtime.Gosched() // GOMAXPROCS may be less than the number of threads
		}
	}
}

// keepOthers pins the threads of the process that are not in the team to the given processors.
func (t *Team) keepOthers(processors []int) {
	var team []int
	for i := range t.members {
		team = append(team, t.members[i].thread)
	}
	for _, id := range host.OtherThreads(team) {
		host.Pin(id, processors...) // fails if the thread has ended
	}
}

// Threads returns the size of the team.
func (t *Team) Threads() int { return len(t.members) }

// Pinned reports whether every thread is pinned to one processor.
func (t *Team) Pinned() bool { return t.pinned }

// Close ends the threads of the team and restores the processors of the others and GOMAXPROCS.
func (t *Team) Close() {
	for i := range t.members {
		close(t.members[i].work)
		<-t.members[i].done
	}
	t.keepOthers(host.Processors())
	runtime.GOMAXPROCS(t.procs)
}

// Time runs f on every thread with the thread's number. It returns the time from the common
// start to the end of the last thread, and reports whether a thread was descheduled for more
// than a fiftieth of its time.
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

// isDisturbed reports whether a thread was descheduled: it did not run for the time lost of the
// time elapsed, and lost exceeds the error of the clocks.
func isDisturbed(lost, elapsed time.Duration) bool {
	const share, clock = 50, 5 * time.Microsecond
	return lost > elapsed/share+clock
}

// MeasureAlone is Measure of a pass that only the first thread runs, with the goroutines that
// it starts, while the others of the team are idle.
func (t *Team) MeasureAlone(budget time.Duration, pass func(i int)) Sample {
	t.waits = len(t.members) > 1
	defer func() { t.waits = false }()
	return t.Measure(budget, func(worker, i int) {
		if worker == 0 {
			pass(i)
		}
	})
}

// share returns the range [from, to) of n items for a worker of the team.
func (t *Team) share(worker, n, grain int) (from, to int) {
	return part(worker, len(t.members), n, grain)
}

// part returns range i of n items split into parts. Ranges start at multiples of grain.
func part(i, parts, n, grain int) (from, to int) {
	grains := (n + grain - 1) / grain
	at := func(i int) int { return min(grains*i/parts*grain, n) }
	return at(i), at(i + 1)
}
