package decoder

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/family"
)

// TestRopeBase: every positive number is a base.
func TestRopeBase(t *testing.T) {
	for base, ok := range map[float64]bool{1: true, 0.5: true, 0: false, -1: false, math.Inf(1): false, math.NaN(): false} {
		if _, err := (ropeSettings{family.Rope{Theta: base}}).plan(8, 64); (err == nil) != ok {
			t.Errorf("base %g: %v", base, err)
		}
	}
}

// TestYaRNRamp: pairs after the last that turns once keep nothing of their frequency, and the ramp ends at the last element of a
// head at most.
func TestYaRNRamp(t *testing.T) {
	const head, factor = 8, 4
	// With beta_slow near 0 the ramp would end far beyond the head: it ends at element 7.
	r := ropeSettings{family.Rope{Type: "yarn", Theta: 10000, Factor: factor, OriginalLength: 64, BetaFast: 32, BetaSlow: 1e-9}}
	p, err := r.plan(head, 64)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range p.Divisors {
		ramp := float64(i) / (head - 1)
		if want := 1 / (ramp/factor + 1 - ramp); math.Abs(got-want) > 1e-12 {
			t.Errorf("pair %d is divided by %g, want %g", i, got, want)
		}
	}
}

// TestYaRNMagnitude: the magnitude is that of attention_factor, of a pair of mscale, also of 1, or of the factor alone.
func TestYaRNMagnitude(t *testing.T) {
	of := func(scale float64) float64 { return (family.Rope{Factor: 40}).YaRNMagnitude(scale) }
	for _, tc := range []struct{ attention, mscale, all, want float64 }{
		{0, 0, 0, of(1)}, {1.5, 2, 3, 1.5}, {0, 1, 1, 1}, {0, 1, 0.5, of(1) / of(0.5)}, {0, 0.5, 1, of(0.5) / of(1)}, {0, 0.707, 0, of(1)},
	} {
		r := ropeSettings{family.Rope{Type: "yarn", Theta: 10000, Factor: 40, OriginalLength: 4096, AttentionFactor: tc.attention,
			MScale: tc.mscale, MScaleAllDim: tc.all}}
		if p, err := r.plan(64, 4096); err != nil || math.Abs(p.Magnitude-tc.want) > 1e-12 {
			t.Errorf("%+v: got %+v (%v)", tc, p, err)
		}
	}
}

// TestYaRNPairs: of DeepSeek-V3's 32 pairs, those up to 10 make 32 turns or more in 4096 positions and stay, those from 23 on make
// less than one and are interpolated by the factor.
func TestYaRNPairs(t *testing.T) {
	p, err := (ropeSettings{family.Rope{Type: "yarn", Theta: 10000, Factor: 40, OriginalLength: 4096}}).plan(64, 163840)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range p.Divisors {
		ramp := min(max(float64(i-10)/13, 0), 1)
		if want := 1 / (ramp/40 + 1 - ramp); math.Abs(got-want) > 1e-9 {
			t.Errorf("pair %d is divided by %g, want %g", i, got, want)
		}
	}
	if p, err := (ropeSettings{family.Rope{Theta: 10000}}).plan(64, 4096); err != nil || p.Scaling != "default" {
		t.Errorf("without a type: %+v (%v)", p, err)
	}
}

// TestYaRNTruncate: with truncate false the ramp begins and ends between pairs.
func TestYaRNTruncate(t *testing.T) {
	truncate := false
	p, err := (ropeSettings{family.Rope{Type: "yarn", Theta: 10000, Factor: 40, OriginalLength: 4096, Truncate: &truncate}}).plan(64, 163840)
	if err != nil {
		t.Fatal(err)
	}
	turns := func(n float64) float64 { return 32 * math.Log(4096/(n*2*math.Pi)) / math.Log(10000) }
	low, high := turns(32), turns(1)
	for i, got := range p.Divisors {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		if want := 1 / (ramp/40 + 1 - ramp); math.Abs(got-want) > 1e-9 {
			t.Errorf("pair %d is divided by %g, want %g", i, got, want)
		}
	}
}
