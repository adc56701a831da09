package bench

import (
	"runtime"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
)

// Laps times the steps of work that runs on any threads of the process, such as training. Its
// zero value is ready to use; Start begins a lap.
type Laps struct {
	all, quiet []float64
	began      time.Duration // total time that threads had waited for a processor at the start of the lap
}

// Start begins a lap.
func (l *Laps) Start() { l.began = host.Waited() }

// End ends a lap of the given duration and begins the next one. The lap is disturbed if the
// threads of the process waited longer for a processor than the tolerance of Team.Time, for
// each of GOMAXPROCS threads. Only Linux reports the waiting time.
func (l *Laps) End(elapsed time.Duration) {
	now := host.Waited()
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

// Sample returns the sample of the laps, with the rules of Team.Measure.
func (l *Laps) Sample() Sample { return sampleOf(l.all, l.quiet) }
