package bench

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestLaps checks that disturbed laps are discarded if enough others remain, and are reported
// otherwise.
func TestLaps(t *testing.T) {
	var l Laps
	for i := range 5 {
		l.add(time.Duration(i+1)*time.Second, i > 2)
	}
	if s := l.Sample(); s.Busy || s.Median != 2 || s.Runs != 3 || s.Disturbed != 2 {
		t.Errorf("five laps, three undisturbed: got %+v", s)
	}
	l.add(time.Second, true)
	l = Laps{all: l.all, quiet: l.quiet[:2]}
	if s := l.Sample(); !s.Busy || s.Runs != 6 {
		t.Errorf("six laps, two undisturbed: got %+v", s)
	}
}

// TestLapsWait checks that a lap is disturbed if more threads of the process run than it has
// processors.
func TestLapsWait(t *testing.T) {
	if _, err := os.Stat("/proc/thread-self/schedstat"); err != nil {
		t.Skip("this system does not report how long threads wait for a processor")
	}
	const length = 200 * time.Millisecond
	n := 3 * Processors()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n)) // so that the others act like other programs
	var l Laps
	var work sync.WaitGroup
	begin := make(chan bool)
	for range n {
		work.Go(func() {
			<-begin
			for start := time.Now(); time.Since(start) < length; {
			}
		})
	}
	l.Start()
	start := time.Now()
	close(begin)
	work.Wait()
	l.End(time.Since(start))
	if s := l.Sample(); !s.Busy {
		t.Errorf("%d threads on %d processors: got an undisturbed lap: %+v", n, Processors(), s)
	}
}
