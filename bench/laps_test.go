package bench

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestLaps: laps in which something else had the processors do not count where there are
// enough others, and are told of where there are not.
func TestLaps(t *testing.T) {
	var l Laps
	for i := range 5 {
		l.add(time.Duration(i+1)*time.Second, i > 2)
	}
	if s := l.Sample(); s.Busy || s.Median != 2 || s.Runs != 3 || s.Disturbed != 2 {
		t.Errorf("three laps of five are undisturbed: %+v", s)
	}
	l.add(time.Second, true)
	l = Laps{all: l.all, quiet: l.quiet[:2]}
	if s := l.Sample(); !s.Busy || s.Runs != 6 {
		t.Errorf("two laps of six are undisturbed: %+v", s)
	}
}

// TestLapsWait: a lap in which more threads of the process run than it has processors is
// disturbed.
func TestLapsWait(t *testing.T) {
	if _, err := os.Stat("/proc/thread-self/schedstat"); err != nil {
		t.Skip("the system does not count how long threads wait for a processor")
	}
	const length = 200 * time.Millisecond
	n := 3 * Processors()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n)) // so that the others are like other programs
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
		t.Errorf("%d threads on %d processors are not disturbed: %+v", n, Processors(), s)
	}
}
