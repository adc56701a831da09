// Package bench measures the operations of this module beside the limits of the
// machine that they run on.
//
//	rate      what an operation does in a second: bytes of its source, or
//	          arithmetic operations, over the median of its times
//	limit     the rate that the machine allows, measured in the same run: memory
//	          that streams as many bytes in and out, or the instruction that the
//	          operation's kernel consists of, on registers alone
//	fraction  rate / limit
//
// A Team is the threads that measure, each kept on a processor of its own where
// the system can do that. Nothing here prints.
package bench

import (
	"math"
	"slices"
	"time"
)

// A Sample is the times of one operation, in seconds.
type Sample struct {
	Median    float64
	Deviation float64 // median of the distances from the median; NaN of one run
	Min, Max  float64
	Runs      int
	Disturbed int  // runs besides these, in which something else had the processor
	Busy      bool // these are such runs too: there were hardly others
	Parts     int  // of the work, one of which each run did, and took as many times as long for all; 0: a run did all
}

// Summarize returns the sample of some times, in seconds. Of none, it is all
// NaN.
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

// median returns the middle of sorted values, or the mean of the middle two.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Spread returns the deviation as a share of the median; NaN of one run.
func (s Sample) Spread() float64 { return s.Deviation / s.Median }

// A Unit is what a rate counts.
type Unit string

const (
	Bytes  Unit = "GB/s"    // 10⁹ bytes a second
	Floats Unit = "GFLOP/s" // 10⁹ additions and multiplications of floating-point numbers a second
	Ints   Unit = "GOP/s"   // the same of integers
)

// A Result is one operation that was measured, or one limit.
type Result struct {
	Op      string
	Format  string // block format; "" where the operation has none
	Source  string // elements of the source: f32, bf16; "" where that says nothing
	M, N, K int    // 0 where the operation has no such dimension
	Packed  bool   // B was packed beforehand
	Both    bool   // a rowwise and a columnwise copy were made
	Threads int
	Kernel  string // what ran
	Time    Sample
	Work    float64 // bytes or operations in Time
	Unit    Unit
	Limit   float64 // the rate that the limit allows; NaN for a limit itself
	LimitBy string  // what the limit is
}

// Rate returns the rate of the median time, in its unit.
func (r Result) Rate() float64 { return r.Work / r.Time.Median / 1e9 }

// Fraction returns the share of the limit that was reached.
func (r Result) Fraction() float64 { return r.Rate() / r.Limit }

// shortest is how long a timed run takes at least, so that the clock and the
// start of the threads do not show.
const shortest = time.Millisecond

// moment is how long a run takes at most that is begun anew because something else
// had the processor.
const moment = 100 * time.Millisecond

// Measure times pass, which every thread of the team runs with its number and
// that of the pass, which counts up from 0; the threads start together and the
// last one to end counts. It spends the budget on it, but takes three samples
// at least, after a pass that warms caches and is not counted. Where these take more
// than twice the budget, that pass counts, and others follow as long as they end by
// then. Samples in which something else had the processor do not count where there are
// enough others.
func (t *Team) Measure(budget time.Duration, pass func(worker, i int)) Sample {
	const most = 1 << 14
	start := time.Now()
	done := 0
	timed := func(passes int) (time.Duration, bool) {
		first := done
		done += passes
		return t.Time(func(worker int) {
			for i := range passes {
				pass(worker, first+i)
			}
		})
	}
	once, disturbed := timed(1)
	if disturbed && once > 2*budget && once < moment { // perhaps that is why it took so long
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
	long := budget > 0 && (1+least)*once > 2*budget
	if long {
		add(once, disturbed)
	}
	for {
		spent := time.Since(start)
		if long && (len(all) == least || spent+once > 2*budget) || !long && len(all) >= least && (len(all) == most || spent >= budget) {
			break
		}
		add(timed(passes))
	}
	return sampleOf(all, quiet)
}

// least is how many undisturbed times a sample is made of, if there are as many times.
const least = 3

// sampleOf returns the sample of those times in which nothing else had the processor,
// and where these are too few, the busy sample of all.
func sampleOf(all, quiet []float64) Sample {
	if len(quiet) < min(least, len(all)) {
		s := Summarize(all)
		s.Busy = true
		return s
	}
	s := Summarize(quiet)
	s.Disturbed = len(all) - len(quiet)
	return s
}

// times returns the sample of all of the work, of one that has so many equal parts.
func (s Sample) times(n int) Sample {
	if n > 1 {
		s.Parts = n
	}
	for _, x := range []*float64{&s.Median, &s.Deviation, &s.Min, &s.Max} {
		*x *= float64(n)
	}
	return s
}
