// Package bench measures the operations of this module against the limits of the machine.
//
//	rate      work per second: bytes of the source, or arithmetic operations, divided by
//	          the median time
//	limit     the rate that the machine allows, measured in the same run: a memory stream
//	          of as many bytes in and out, or the instruction that bounds the operation's
//	          kernel, on registers only
//	fraction  rate / limit
//
// A Team is a set of measuring threads, each pinned to a processor where the system allows
// it. This package prints nothing.
package bench

import (
	"math"
	"slices"
	"time"
)

// A Sample summarizes the times of one operation, in seconds.
type Sample struct {
	Median    float64
	Deviation float64 // median absolute deviation from the median; NaN for a single run
	Min, Max  float64
	Runs      int
	Disturbed int  // discarded runs, in which another process used the processor
	Busy      bool // the sample consists of such runs: too few others
	Parts     int  // equal parts of the work; each run did one, and the times are scaled to all; 0: a run did all
}

// Summarize returns the sample of times in seconds. All its values are NaN if seconds is
// empty.
func Summarize(seconds []float64) Sample {
	if len(seconds) == 0 {
		nan := math.NaN()
		return Sample{Median: nan, Deviation: nan, Min: nan, Max: nan}
	}
	sorted := slices.Sorted(slices.Values(seconds))
	s := Sample{Median: median(sorted), Min: sorted[0], Max: sorted[len(sorted)-1], Runs: len(sorted)}
	for i, x := range sorted {
		sorted[i] = math.Abs(x - s.Median)
	}
	slices.Sort(sorted)
	if s.Deviation = median(sorted); s.Runs == 1 {
		s.Deviation = math.NaN()
	}
	return s
}

// median returns the median of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Spread returns the deviation as a share of the median; NaN for a single run.
func (s Sample) Spread() float64 { return s.Deviation / s.Median }

// A Unit is the unit of a rate.
type Unit string

const (
	Bytes  Unit = "GB/s"    // 10⁹ bytes per second
	Floats Unit = "GFLOP/s" // 10⁹ floating-point additions and multiplications per second
	Ints   Unit = "GOP/s"   // 10⁹ integer additions and multiplications per second
)

// A Result is one measured operation or limit.
type Result struct {
	Op      string
	Format  string // block format; "" if the operation has none
	Source  string // elements of the source: f32, bf16; "" if not applicable
	M, N, K int    // 0 for a dimension that the operation lacks
	Packed  bool   // B was already packed
	Both    bool   // rowwise and columnwise copies were made
	Threads int
	Kernel  string // implementation that ran
	Time    Sample
	Work    float64 // bytes or operations done in Time
	Unit    Unit
	Limit   float64 // NaN for a limit itself
	LimitBy string  // description of the limit
}

// Rate returns the rate of the median time in units of Unit.
func (r Result) Rate() float64 { return r.Work / r.Time.Median / 1e9 }

// Fraction returns the rate as a share of the limit.
func (r Result) Fraction() float64 { return r.Rate() / r.Limit }

// shortest is the minimum duration of a timed run, to hide the resolution of the clock and the
// start of the threads.
const shortest = time.Millisecond

// moment is the maximum duration of a first run that is repeated because another process used
// the processor.
const moment = 100 * time.Millisecond

// Measure times pass. Every thread of the team calls it with the thread's number and the
// number of the pass, which counts up from 0. The threads start together; the last one to end
// counts.
//
// After one pass to warm the caches, Measure takes samples until the budget is spent, at least
// three. If these would take more than twice the budget, the first pass counts too, and others
// follow only if they end within that time. Samples during which another process used the
// processor are discarded if enough others remain.
func (t *Team) Measure(budget time.Duration, pass func(worker, i int)) Sample {
	start := time.Now()
	done := 0
	return measure(budget, func() time.Duration { return time.Since(start) }, func(passes int) (time.Duration, bool) {
		first := done
		done += passes
		return t.Time(func(worker int) {
			for i := range passes {
				pass(worker, first+i)
			}
		})
	})
}

// measure is Measure of what timed runs: a number of passes, with the results of Team.Time. spent returns
// the time since the start.
func measure(budget time.Duration, spent func() time.Duration, timed func(passes int) (time.Duration, bool)) Sample {
	const maxSamples = 1 << 14
	once, disturbed := timed(1)
	if disturbed && once > 2*budget && once < moment { // the disturbance may be the cause of the long time
		once, disturbed = timed(1)
	}
	passes := 1
	if goal := min(shortest, max(budget, shortest/10)/8); once < goal {
		passes = int(goal/max(once, 1)) + 1
	}
	var quiet, all []float64
	add := func(d time.Duration, disturbed bool) {
		seconds := d.Seconds() / float64(passes)
		all = append(all, seconds)
		if !disturbed {
			quiet = append(quiet, seconds)
		}
	}
	long := budget > 0 && (1+minSamples)*once > 2*budget
	if long {
		add(once, disturbed)
	}
	for {
		spent := spent()
		if long && (len(all) == minSamples || spent+once > 2*budget) || !long && len(all) >= minSamples &&
			(len(all) == maxSamples || spent >= budget) {
			break
		}
		add(timed(passes))
	}
	return sampleOf(all, quiet)
}

// minSamples is the number of undisturbed times that a sample needs, unless there are fewer
// times in total.
const minSamples = 3

// sampleOf returns the sample of the quiet times, during which no other process used the
// processor. If these are too few, it returns the sample of all times, marked busy.
func sampleOf(all, quiet []float64) Sample {
	if len(quiet) < min(minSamples, len(all)) {
		s := Summarize(all)
		s.Busy = true
		return s
	}
	s := Summarize(quiet)
	s.Disturbed = len(all) - len(quiet)
	return s
}

// times returns the sample of n equal parts of the work.
func (s Sample) times(n int) Sample {
	if n > 1 {
		s.Parts = n
	}
	for _, x := range []*float64{&s.Median, &s.Deviation, &s.Min, &s.Max} {
		*x *= float64(n)
	}
	return s
}
