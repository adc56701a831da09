package bench

import (
	"runtime"
	"time"
)

// Laps times the steps of work that runs on goroutines of any threads of the process,
// such as training. Its zero value is ready; Start begins a lap.
type Laps struct {
	all, quiet []float64
	began      time.Duration // what threads had waited when the lap began
}

// Start begins a lap.
func (l *Laps) Start() { l.began = waited() }

// End ends a lap that took a time, and begins the next one. The lap counts as disturbed
// where the threads of the process waited longer for a processor than noise explains:
// each of GOMAXPROCS threads by the share that Team.Time allows. Systems other than
// Linux do not tell.
func (l *Laps) End(elapsed time.Duration) {
	now := waited()
	threads := time.Duration(min(runtime.GOMAXPROCS(0), Processors()))
	l.add(elapsed, isDisturbed((now-l.began)/threads, elapsed))
	l.began = now
}

func (l *Laps) add(elapsed time.Duration, disturbed bool) {
	l.all = append(l.all, elapsed.Seconds())
	if !disturbed {
		l.quiet = append(l.quiet, elapsed.Seconds())
	}
}

// Len returns the number of laps.
func (l *Laps) Len() int { return len(l.all) }

// Sample returns the times of the laps, as Team.Measure samples those of runs.
func (l *Laps) Sample() Sample { return sampleOf(l.all, l.quiet) }
