package conversion

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// A group is weights whose names differ only in numbers: one weight in every layer.
type group struct {
	name    string
	members []verify.Tensor
	mixed   bool // of several shapes
}

// A groupKey identifies a group.
type groupKey struct {
	name, format string
	rows, cols   int
}

// keyOf returns the group of a weight. With each, every weight is its own group.
func keyOf(name, format string, rows, cols int, each bool) groupKey {
	if !each {
		name = digits.ReplaceAllString(name, "${1}*${2}")
	}
	return groupKey{name, format, rows, cols}
}

var digits = regexp.MustCompile(`(^|\.)\d+(\.|$)`)

// grouped groups results of the same name, shape and format, in the order of their
// first members.
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

// foldRounded joins the groups of formats without blocks, one for each format, if there are blocks
// beside them: what clients want in BF16 for a source in F32.
func foldRounded(groups []*group) (blocks, rounded []*group) {
	for _, g := range groups {
		format := g.members[0].Format
		if f, err := checkpoint.LookupFormat(format); err == nil && (f.Scaled() || f.Block.Cols > 0) || g.noLoss() { // without loss: NaN or Inf
			blocks = append(blocks, g)
		} else if i := slices.IndexFunc(rounded, func(r *group) bool { return r.members[0].Format == format }); i >= 0 {
			rounded[i].members = append(rounded[i].members, g.members...)
		} else {
			rounded = append(rounded, &group{name: "rounded", members: slices.Clone(g.members), mixed: true})
		}
	}
	if len(blocks) == 0 {
		return groups, nil
	}
	return blocks, rounded
}

// shape returns the text of the shape of each weight, "" if they differ.
func (g *group) shape() string {
	if g.mixed {
		return ""
	}
	return fmt.Sprintf("%d×%d", g.members[0].Rows, g.members[0].Cols)
}

// gain returns the text of the mean SQNR gain of a scale search.
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

// noLoss reports whether all finite values are exact.
func (g *group) noLoss() bool { return math.IsInf(g.worst(), 1) }

// exact reports whether all weights are exact copies. A weight that holds NaN or Inf
// is not.
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
	return show.Decibels(g.mean(func(r measure.Result) float64 { return r.SQNR }))
}

// lossy returns text, or "" if all finite values are exact.
func (g *group) lossy(text string) string {
	if g.noLoss() {
		return ""
	}
	return text
}
