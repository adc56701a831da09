package summary

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// A group is the weights that differ only in the numbers of their names: the
// same weight of every layer.
type group struct {
	name    string
	members []verify.Tensor
}

// A groupKey is what the weights of a group have in common.
type groupKey struct {
	name, format string
	rows, cols   int
}

// keyOf returns the group of a weight, which has no other members where each is true.
func keyOf(name, format string, rows, cols int, each bool) groupKey {
	if !each {
		name = digits.ReplaceAllString(name, "${1}*${2}")
	}
	return groupKey{name, format, rows, cols}
}

var digits = regexp.MustCompile(`(^|\.)\d+(\.|$)`)

// grouped puts results of the same shape and format into groups, in the order in
// which they appear first; each on its own where each is true.
func grouped(results []verify.Tensor, each bool) []*group {
	var groups []*group
	index := map[groupKey]*group{}
	for _, t := range results {
		key := keyOf(t.Name, t.Format, t.Rows, t.Cols, each)
		g := index[key]
		if g == nil {
			g = &group{name: key.name}
			groups = append(groups, g)
			index[key] = g
		}
		g.members = append(g.members, t)
	}
	return groups
}

// gain returns the text of the mean gain of a search of scales.
func (g *group) gain() string {
	sum, n := 0.0, 0
	for _, m := range g.members {
		if gain, ok := m.Gain(); ok {
			sum, n = sum+gain, n+1
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+.2f", sum/float64(n))
}

// mean returns the mean of a figure over the group's weights.
func (g *group) mean(figure func(measure.Result) float64) float64 {
	sum := 0.0
	for _, m := range g.members {
		sum += figure(m.Result)
	}
	return sum / float64(len(g.members))
}

// share returns a count as a share of the group's elements.
func (g *group) share(count func(measure.Result) int64) float64 {
	var n, elements int64
	for _, m := range g.members {
		n += count(m.Result)
		elements += m.Result.Elements
	}
	return float64(n) / float64(elements)
}

// worst returns the lowest SQNR of the group.
func (g *group) worst() float64 {
	worst := math.Inf(1)
	for _, m := range g.members {
		worst = min(worst, m.Result.SQNR)
	}
	return worst
}

// noLoss reports whether every finite value of the group is exact.
func (g *group) noLoss() bool { return math.IsInf(g.worst(), 1) }

// exact reports whether every weight of the group is an exact copy. One with
// values that cannot be compared, NaN and Inf, is none.
func (g *group) exact() bool {
	return g.noLoss() && !slices.ContainsFunc(g.members, func(t verify.Tensor) bool {
		return t.Result.NonFinite > 0 || t.Result.NonFiniteWant > 0
	})
}

// sqnr returns the text of the mean SQNR.
func (g *group) sqnr() string {
	if g.noLoss() && !g.exact() {
		return "-"
	}
	return cli.Decibels(g.mean(func(r measure.Result) float64 { return r.SQNR }))
}

// lossy returns text, or nothing where every finite value of the group is exact.
func (g *group) lossy(text string) string {
	if g.noLoss() {
		return ""
	}
	return text
}
