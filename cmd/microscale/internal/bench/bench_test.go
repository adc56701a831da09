package bench

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func TestSummarize(t *testing.T) {
	for _, tc := range []struct {
		seconds []float64
		want    Sample
	}{
		{[]float64{3, 1}, Sample{2, 1, 1, 3, 2, 0, false, 0}},
		{[]float64{9, 1, 2}, Sample{2, 1, 1, 9, 3, 0, false, 0}},
		{[]float64{4, 1, 2, 100}, Sample{3, 1.5, 1, 100, 4, 0, false, 0}},
		{[]float64{5, 5, 5, 5, 50}, Sample{5, 0, 5, 50, 5, 0, false, 0}},
	} {
		given := slices.Clone(tc.seconds)
		if got := Summarize(tc.seconds); got != tc.want {
			t.Errorf("Summarize(%v): got %+v, want %+v", tc.seconds, got, tc.want)
		}
		if !slices.Equal(given, tc.seconds) {
			t.Errorf("Summarize(%v): argument became %v", given, tc.seconds)
		}
	}
	if s := Summarize(nil); !math.IsNaN(s.Median) || !math.IsNaN(s.Spread()) || s.Runs != 0 {
		t.Errorf("Summarize(nil): got %+v, want NaN", s)
	}
	if s := Summarize([]float64{2}); s.Median != 2 || s.Min != 2 || s.Max != 2 || s.Runs != 1 || !math.IsNaN(s.Spread()) {
		t.Errorf("Summarize of one time: got %+v", s)
	}
	if s := (Sample{Median: 4, Deviation: 1}).Spread(); s != 0.25 {
		t.Errorf("spread of 1 in 4: got %v", s)
	}
}

func TestRate(t *testing.T) {
	r := Result{Work: 6e9, Time: Sample{Median: 2}, Limit: 4}
	if r.Rate() != 3 || r.Fraction() != 0.75 {
		t.Errorf("6e9 in 2 s, limit 4: got rate %v, fraction %v", r.Rate(), r.Fraction())
	}
	r.Limit = math.NaN()
	if !math.IsNaN(r.Fraction()) {
		t.Errorf("limit: got fraction %v, want NaN", r.Fraction())
	}
}

// teams runs body with a team of every size up to four.
func teams(t *testing.T, body func(t *testing.T, team *Team)) {
	t.Helper()
	for threads := 1; threads <= min(4, Processors()); threads++ {
		t.Run("threads="+string(rune('0'+threads)), func(t *testing.T) {
			team, err := NewTeam(threads)
			if err != nil {
				t.Fatal(err)
			}
			defer team.Close()
			body(t, team)
		})
	}
}

// TestMeasure checks that every worker runs every pass once, in order, and that there are
// samples even without a budget. With one, a first pass that other programs interrupt may be the only one.
func TestMeasure(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		for _, budget := range []time.Duration{0, 3 * time.Millisecond} {
			next := make([]int, team.Threads())
			s := team.Measure(budget, func(worker, i int) {
				if i != next[worker] {
					t.Errorf("worker %d: got pass %d after %d", worker, i, next[worker]-1)
				}
				next[worker]++
			})
			warm, least := 1, minSamples
			if budget > 0 {
				warm, least = 0, 1
			}
			for worker, n := range next {
				if n != next[0] || n < s.Runs+s.Disturbed+warm {
					t.Errorf("worker %d: got %d passes, the first worker %d, for %d samples", worker, n, next[0], s.Runs)
				}
			}
			if s.Runs < least || !(s.Min <= s.Median && s.Median <= s.Max && s.Median > 0) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestMeasureBudget checks how many passes run, by the time that each takes, and how many samples they give.
func TestMeasureBudget(t *testing.T) {
	const µs, ms = time.Microsecond, time.Millisecond
	for name, tc := range map[string]struct {
		budget      time.Duration
		disturbed   time.Duration // the time of the first pass, if it is disturbed
		pass        time.Duration // the time of another pass
		calls, runs int
	}{
		"no budget":                    {0, 0, µs, 1 + 3*13, 3},
		"short passes":                 {3 * ms, 0, µs, 1 + 8*376, 8},
		"pairs":                        {3 * ms, 0, ms / 4, 1 + 6*2, 6},
		"single passes":                {3 * ms, 0, ms, 1 + 3, 3},
		"three within twice a budget":  {3 * ms, 0, 2 * ms, 3, 3},
		"two within twice a budget":    {3 * ms, 0, 3 * ms, 2, 2},
		"one":                          {3 * ms, 0, 4 * ms, 1, 1},
		"disturbed within the budget":  {6 * ms, 2 * ms, ms, 1 + 4, 4},
		"disturbed, then short passes": {3 * ms, 7 * ms, µs, 2 + 3*376, 3},
		"disturbed, then one":          {3 * ms, 7 * ms, 4 * ms, 2, 1},
		"disturbed for long":           {3 * ms, moment, µs, 1, 1},
	} {
		var spent time.Duration
		calls := 0
		s := measure(tc.budget, func() time.Duration { return spent }, func(passes int) (time.Duration, bool) {
			disturbed := calls == 0 && tc.disturbed > 0
			d := tc.pass * time.Duration(passes)
			if disturbed {
				d = tc.disturbed
			}
			calls += passes
			spent += d
			return d, disturbed
		})
		if calls != tc.calls || s.Runs != tc.runs || s.Busy != (tc.disturbed == moment) {
			t.Errorf("%s: got %d passes, %+v, want %d and %d samples", name, calls, s, tc.calls, tc.runs)
		}
	}
}

// TestMeasureTimes checks that a pass of known duration is timed as at least that long.
func TestMeasureTimes(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		const length = 2 * time.Millisecond
		last := team.Threads() - 1
		s := team.Measure(0, func(worker, _ int) {
			if worker == last {
				time.Sleep(length)
			}
		})
		if s.Min < length.Seconds() {
			t.Errorf("passes of %v: got %v s", length, s.Min)
		}
	})
}

// TestMeasureLong checks that a pass much longer than the budget runs once, or twice if it was
// disturbed, as one that sleeps is.
func TestMeasureLong(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		calls := 0
		s := team.Measure(time.Millisecond, func(worker, _ int) {
			if worker == 0 {
				calls++
				time.Sleep(5 * time.Millisecond)
			}
		})
		if calls > 2 || s.Runs != 1 || s.Min < 5e-3 {
			t.Errorf("%d calls, %+v", calls, s)
		}
	})
}

// TestMeasureSlow checks that the first pass counts if four passes take more than twice the
// budget, and that no pass starts that would end later.
func TestMeasureSlow(t *testing.T) {
	team, err := NewTeam(1)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	const length = 120 * time.Millisecond // minimum; longer if the machine is busy
	for budget, most := range map[time.Duration]int{length / 4: 1, length * 3 / 4: 1, length * 3 / 2: 2} {
		calls := 0
		s := team.Measure(budget, func(int, int) {
			calls++
			time.Sleep(length)
		})
		if s.Runs != calls || calls > most || s.Min < length.Seconds() {
			t.Errorf("budget %v: %d calls, %+v, want %d", budget, calls, s, most)
		}
	}
}

// TestTeamTogether checks that Go runs all threads of a team in parallel, also after the
// runtime's update of GOMAXPROCS, which runs every second that is not idle.
func TestTeamTogether(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	teams(t, func(t *testing.T, team *Team) {
		if n := runtime.GOMAXPROCS(0); n != team.Threads() {
			t.Errorf("got %d threads in parallel, want %d", n, team.Threads())
		}
	})
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("got GOMAXPROCS %d after Close", n)
	}
	runtime.SetDefaultGOMAXPROCS()
	threads := min(2, Processors())
	team, err := NewTeam(threads)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	for start := time.Now(); time.Since(start) < 1500*time.Millisecond; {
		team.Measure(time.Millisecond, func(int, int) {})
	}
	if n := runtime.GOMAXPROCS(0); n < threads {
		t.Errorf("got %d threads in parallel after the update, want %d", n, threads)
	}
}

func TestMeasureAlone(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		var calls atomic.Int32
		s := team.MeasureAlone(0, func(i int) {
			if i != int(calls.Add(1))-1 {
				t.Errorf("got pass %d in call %d", i, calls.Load())
			}
		})
		if int(calls.Load()) < s.Runs+1 || s.Runs < 3 {
			t.Errorf("got %d calls for %+v", calls.Load(), s)
		}
	})
}

func TestTeamSize(t *testing.T) {
	for _, n := range []int{-1, 0, Processors() + 1} {
		if team, err := NewTeam(n); err == nil {
			team.Close()
			t.Errorf("team of %d threads on %d processors: got no error", n, Processors())
		}
	}
}

// TestShare checks that the shares of all workers are adjacent and cover all items.
func TestShare(t *testing.T) {
	for threads := 1; threads <= 5; threads++ {
		team := &Team{members: make([]member, threads)}
		for n := range 40 {
			for _, grain := range []int{1, 4, 7} {
				end := 0
				for w := range threads {
					from, to := team.share(w, n, grain)
					if from != end || to < from || from%grain != 0 && from != n {
						t.Errorf("worker %d of %d has [%d, %d) of %d in steps of %d, after %d", w, threads, from, to, n, grain, end)
					}
					end = to
				}
				if end != n {
					t.Errorf("%d workers have %d of %d", threads, end, n)
				}
			}
		}
	}
}
