package train

import (
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
)

// A Schedule is the course of the learning rate over a run: "cosine", "wsd" or "constant". The rate
// rises linearly during the warm-up.
type Schedule string

const (
	cosine   Schedule = "cosine"   // falls to a tenth along half a cosine after the warm-up
	wsd      Schedule = "wsd"      // warm-up, stable, decay: falls to a tenth linearly over the last fifth
	constant Schedule = "constant" // does not fall
)

// Schedules returns all schedules.
func Schedules() []Schedule { return []Schedule{cosine, wsd, constant} }

func scheduleNames() (names []string) {
	for _, s := range Schedules() {
		names = append(names, string(s))
	}
	return names
}

// String returns the name.
func (s Schedule) String() string { return string(s) }

// MarshalText returns the name. An unknown schedule is an error.
func (s Schedule) MarshalText() ([]byte, error) {
	if !slices.Contains(Schedules(), s) {
		return nil, naming.Unknown("schedule", string(s), scheduleNames())
	}
	return []byte(s), nil
}

// UnmarshalText sets s to the schedule of the given name. Case is ignored.
func (s *Schedule) UnmarshalText(text []byte) error {
	named := Schedule(strings.ToLower(string(text)))
	if _, err := named.MarshalText(); err != nil {
		return err
	}
	*s = named
	return nil
}

const (
	finalRate = 0.1 // of the peak, at the end
	wsdDecay  = 0.2 // of the steps
)

// Factor returns the learning rate of a step, counted from 0, as a fraction of its peak. warmup is a
// fraction of the steps.
func (s Schedule) Factor(step, steps int, warmup float64) float64 {
	rising := warmup * float64(steps)
	if done := float64(step + 1); done < rising {
		return done / rising
	}
	// progress is 1 at the last step.
	progress := func(from float64) float64 {
		return min(max((float64(step+1)-from)/max(float64(steps)-from, 1), 0), 1)
	}
	switch s {
	case cosine:
		return finalRate + (1-finalRate)*(1+math.Cos(math.Pi*progress(rising)))/2
	case wsd:
		return 1 - (1-finalRate)*progress(max(rising, (1-wsdDecay)*float64(steps)))
	}
	return 1
}
