package train

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Schedule is the course of the learning rate over a run, as a factor of its
// peak. It rises linearly over the warm-up, and where it falls it falls to a
// tenth, so that it is a function of the fraction of the steps that is done.
type Schedule string

// The schedules.
const (
	Cosine   Schedule = "cosine"   // falls along half a cosine after the warm-up
	WSD      Schedule = "wsd"      // warm-up, stable, decay: falls linearly over the last fifth
	Constant Schedule = "constant" // never falls
)

// Schedules returns the schedules.
func Schedules() []Schedule { return []Schedule{Cosine, WSD, Constant} }

// ParseSchedule finds a schedule by its name.
func ParseSchedule(name string) (Schedule, error) {
	s := Schedule(strings.ToLower(name))
	if !slices.Contains(Schedules(), s) {
		return "", fmt.Errorf("unknown schedule %q: use one of %s, %s, %s", name, Cosine, WSD, Constant)
	}
	return s, nil
}

func (s Schedule) String() string { return string(s) }

const (
	finalRate = 0.1 // of the peak, at the end
	wsdDecay  = 0.2 // of the steps
)

// Factor returns the learning rate of a step, counted from 0, as a factor of its
// peak. Warmup is a fraction of the steps.
func (s Schedule) Factor(step, steps int, warmup float64) float64 {
	rising := warmup * float64(steps)
	if done := float64(step + 1); done < rising {
		return done / rising
	}
	// The last step is at the end, the first one after the warm-up at the peak.
	progress := func(from float64) float64 {
		return min(max((float64(step+1)-from)/max(float64(steps)-from, 1), 0), 1)
	}
	switch s {
	case Cosine:
		return finalRate + (1-finalRate)*(1+math.Cos(math.Pi*progress(rising)))/2
	case WSD:
		return 1 - (1-finalRate)*progress(max(rising, (1-wsdDecay)*float64(steps)))
	}
	return 1
}
