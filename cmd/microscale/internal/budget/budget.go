// Package budget divides a number of bits among the weights of a model. What each group of weights costs in each format, in bits and in
// divergence, is measured elsewhere; here the sum of the divergences of the groups stands for that of the model. It is nearly so: the
// groups of a model of 135M parameters in NVFP4 have .234 nats one by one, and .260 together.
package budget

import (
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/convert"
)

// A Group is weights that have one format: fused into one matrix, or the experts of a layer.
type Group struct {
	Weights  []string `json:"weights"` // their names
	Elements int64    `json:"elements"`
	Options  []Option `json:"options"` // one: it is fixed
}

// An Option is a format of a group.
type Option struct {
	Format string  `json:"format"`
	Bits   int64   `json:"bits"` // of the group, with scales
	KL     float64 `json:"kl"`   // of the model with this group alone in the format, in nats per token
}

// A Plan is an option of each group.
type Plan []int

// Bits returns the bits per weight of a plan.
func (p Plan) Bits(groups []Group) float64 {
	bits, elements := int64(0), int64(0)
	for i, g := range groups {
		bits += g.Options[p[i]].Bits
		elements += g.Elements
	}
	return float64(bits) / float64(elements)
}

// KL returns the sum of the divergences of a plan.
func (p Plan) KL(groups []Group) (sum float64) {
	for i, g := range groups {
		sum += g.Options[p[i]].KL
	}
	return sum
}

// Uniform returns the plan in which all groups that have an option of a format have it, and the others stay as they are. ok reports
// whether there are any.
func Uniform(groups []Group, format string) (p Plan, ok bool) {
	p = make(Plan, len(groups))
	for i, g := range groups {
		named := func(name string) int {
			return slices.IndexFunc(g.Options, func(o Option) bool { return o.Format == name })
		}
		j := named(format)
		ok = ok || j >= 0
		if j < 0 {
			j = named(convert.Keep)
		}
		p[i] = max(0, j)
	}
	return p, ok
}

// A step takes a group from one option to a larger one.
type step struct {
	group, to int
	bits      int64
	gain      float64
}

// better reports whether a step gains more per bit than another.
func (s step) better(o step) bool { return s.gain*float64(o.bits) > o.gain*float64(s.bits) }

// Allocate returns a plan of at most a number of bits per weight: from the smallest options, the step with the most gain per bit that
// fits, until none does. A step goes to the next corner of the lower convex hull of a group's options, so that gains per bit
// fall. It returns an error if the smallest options take more.
func Allocate(groups []Group, bits float64) (Plan, error) {
	plan, left, elements := make(Plan, len(groups)), 0.0, int64(0)
	for i, g := range groups {
		for j, o := range g.Options {
			if smallest := g.Options[plan[i]]; o.Bits < smallest.Bits || o.Bits == smallest.Bits && o.KL < smallest.KL {
				plan[i] = j
			}
		}
		elements += g.Elements
		left += bits*float64(g.Elements) - float64(g.Options[plan[i]].Bits)
	}
	if left < 0 {
		return nil, fmt.Errorf("a budget of %g bits per weight: the smallest formats take %.3f: allow more bits, or smaller formats", bits,
			plan.Bits(groups))
	}
	for {
		best := step{bits: 1}
		for i, g := range groups {
			if s, ok := g.next(plan[i], left); ok && s.better(best) {
				best, best.group = s, i
			}
		}
		if best.gain == 0 {
			return plan, nil
		}
		plan[best.group] = best.to
		left -= float64(best.bits)
	}
}

// next returns the step with the most gain per bit from an option to one that needs at most left more bits.
func (g Group) next(from int, left float64) (best step, ok bool) {
	for j, o := range g.Options {
		s := step{to: j, bits: o.Bits - g.Options[from].Bits, gain: g.Options[from].KL - o.KL}
		if s.bits > 0 && s.gain > 0 && float64(s.bits) <= left && (!ok || s.better(best)) {
			best, ok = s, true
		}
	}
	return best, ok
}
