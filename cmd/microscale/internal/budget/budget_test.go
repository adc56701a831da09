package budget

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/convert"
)

// randomGroups returns groups with random options; some have one.
func randomGroups(r *rand.Rand, n int) (groups []Group) {
	for range n {
		g := Group{Elements: 1 + r.Int64N(9)}
		for j, bits := range []int64{4, 8, 16}[:1+r.IntN(3)] {
			g.Options = append(g.Options, Option{Format: string(rune('a' + j)), Bits: bits * g.Elements, KL: r.ExpFloat64() / float64(bits)})
		}
		groups = append(groups, g)
	}
	return groups
}

// TestAllocate compares plans with the best of all plans: they keep the budget, and lose at most the gain of the one step that does
// not fit.
func TestAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 1))
	for range 300 {
		groups := randomGroups(r, 6)
		budget := 4 + 13*r.Float64()
		got, err := Allocate(groups, budget)
		if err != nil {
			t.Fatal(err)
		}
		if bits := got.Bits(groups); bits > budget+1e-9 {
			t.Fatalf("%g bits, want at most %g", bits, budget)
		}
		best, all, largest := math.Inf(1), make(Plan, len(groups)), 0.0
		for {
			if all.Bits(groups) <= budget {
				best = min(best, all.KL(groups))
			}
			i := 0
			for ; i < len(all); i++ {
				if all[i]++; all[i] < len(groups[i].Options) {
					break
				}
				all[i] = 0
			}
			if i == len(all) {
				break
			}
		}
		for _, g := range groups {
			for _, o := range g.Options {
				largest = max(largest, g.Options[0].KL-o.KL)
			}
		}
		if got.KL(groups) > best+largest+1e-12 {
			t.Errorf("divergence %g, the best plan has %g, a step at most %g", got.KL(groups), best, largest)
		}
		again, _ := Allocate(groups, budget)
		if !slices.Equal(got, again) {
			t.Errorf("plans %v and %v of the same groups", got, again)
		}
	}
}

// TestAllocateSteps has one group that gains most per bit, one that gains nothing, one whose middle option is above the line between the
// others, and one that is fixed.
func TestAllocateSteps(t *testing.T) {
	groups := []Group{
		{Elements: 10, Options: []Option{{"a", 40, 1}, {"b", 80, .1}, {"c", 160, 0}}},
		{Elements: 10, Options: []Option{{"a", 40, .1}, {"b", 80, .2}}},
		{Elements: 10, Options: []Option{{"a", 40, .5}, {"b", 80, .49}, {"c", 160, 0}}},
		{Elements: 10, Options: []Option{{"x", 60, .3}}},
	}
	for _, c := range []struct {
		bits float64
		want Plan
	}{{4.5, Plan{0, 0, 0, 0}}, {5.5, Plan{1, 0, 0, 0}}, {8.5, Plan{1, 0, 2, 0}}, {16, Plan{2, 0, 2, 0}}} {
		got, err := Allocate(groups, c.bits)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%g bits: got %v (%v), want %v", c.bits, got, err, c.want)
		}
	}
	if _, err := Allocate(groups, 4.4); err == nil {
		t.Error("4.4 bits: got no error")
	}
	groups[1].Options = append(groups[1].Options, Option{convert.Keep, 160, 0})
	for format, want := range map[string]Plan{"a": {0, 0, 0, 0}, "b": {1, 1, 1, 0}, "c": {2, 2, 2, 0}, "d": nil} {
		if p, ok := Uniform(groups, format); ok != (want != nil) || ok && !slices.Equal(p, want) {
			t.Errorf("all in %s: got %v (%t), want %v", format, p, ok, want)
		}
	}
}
