package identify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// TestBound computes how often 64 blocks of MXFP4 tell the rule of their scales at all: to a reader who knows the distribution of
// the values, which are independent, and takes the rule that makes the codes and scales most likely. No other reader is right more often.
// docs/identify.md has the figures.
func TestBound(t *testing.T) {
	slow.Full(t, "it is about what can be known, not about the program")
	lows := []float64{3, 4, 3.5, 3 * math.Sqrt2} // the smallest amax under a scale of 1: rceil, floor, even, round
	normal := func(x float64) float64 { return math.Erf(x / math.Sqrt2) }
	for name, d := range map[string]struct {
		draw  func(r *rand.Rand) float64
		below func(x float64) float64 // the probability of a magnitude below x
	}{
		"normal": {(*rand.Rand).NormFloat64, normal},
		"t": {func(r *rand.Rand) float64 {
			a, b, c := r.NormFloat64(), r.NormFloat64(), r.NormFloat64()
			return r.NormFloat64() / math.Sqrt((a*a+b*b+c*c)/3)
		}, func(x float64) float64 {
			u := x / math.Sqrt(3)
			return 2 / math.Pi * (u/(1+u*u) + math.Atan(u))
		}},
		"columns": {func(r *rand.Rand) float64 {
			if r.IntN(64) == 0 {
				return 10 * r.NormFloat64()
			}
			return r.NormFloat64()
		}, func(x float64) float64 { return 63./64*normal(x) + 1./64*normal(x/10) }},
	} {
		const trials, blocks, block = 1600, 64, 32
		r, right := rand.New(rand.NewPCG(7, 8)), 0
		for trial := range trials {
			rule, width, likelihood := trial%len(lows), math.Exp2(r.Float64()), make([]float64, len(lows))
			for range blocks {
				values, amax := make([]float64, block), 0.0
				for i := range values {
					values[i] = math.Abs(d.draw(r)) * width
					amax = max(amax, values[i])
				}
				scale := math.Exp2(math.Floor(math.Log2(amax / lows[rule])))
				addLikelihoods(likelihood, lows, values, scale, func(x float64) float64 { return d.below(x * scale / width) })
			}
			best := 0
			for i, l := range likelihood {
				if l > likelihood[best] {
					best = i
				}
			}
			if best == rule {
				right++
			}
		}
		t.Logf("%s: %.1f %% right", name, 100*float64(right)/trials)
		if right > trials*95/100 || right < trials*80/100 {
			t.Errorf("%s: %d of %d right", name, right, trials)
		}
	}
}

// addLikelihoods adds, for each rule, the logarithm of the probability of the codes of E2M1 with an amax in [low, 2·low).
func addLikelihoods(sums, lows, values []float64, scale float64, below func(x float64) float64) {
	edges := []float64{0, .25, .75, 1.25, 1.75, 2.5, 3.5, 5, math.Inf(1)}
	for k, low := range lows {
		inside, under := 0.0, 0.0
		for _, v := range values {
			n := 0
			for v/scale >= edges[n+1] {
				n++
			}
			from, to := edges[n], edges[n+1]
			inside += math.Log(max(below(min(to, 2*low))-below(min(from, 2*low)), 0))
			under += math.Log(max(below(min(to, low))-below(min(from, low)), 0))
		}
		sums[k] += inside
		if !math.IsInf(inside, -1) {
			sums[k] += math.Log(max(-math.Expm1(under-inside), impossible))
		}
	}
}
