package main

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// A group is the weights that differ only in the numbers of their names: the
// same weight of every layer.
type group struct {
	name    string
	members []verify.Tensor
}

var digits = regexp.MustCompile(`(^|\.)\d+(\.|$)`)

// grouped puts results of the same shape and format into groups, in the order in
// which they appear first; each on its own where each is true.
func grouped(results []verify.Tensor, each bool) []*group {
	var groups []*group
	index := map[string]*group{}
	for _, t := range results {
		name := t.Name
		if !each {
			name = digits.ReplaceAllString(name, "${1}*${2}")
		}
		key := fmt.Sprintf("%s %s %d %d", name, t.Format, t.Rows, t.Cols)
		g := index[key]
		if g == nil {
			g = &group{name: name}
			groups = append(groups, g)
			index[key] = g
		}
		g.members = append(g.members, t)
	}
	return groups
}

// errorColumns are the columns of the table of errors. A terminal that is too
// narrow does without those that say least, the largest spare first.
var errorColumns = []struct {
	column
	spare int
	text  func(g *group) string
}{
	{column{"weight", false}, 0, func(g *group) string { return g.name }},
	{column{"n", true}, 0, func(g *group) string { return strconv.Itoa(len(g.members)) }},
	{column{"shape", true}, 4, func(g *group) string { return fmt.Sprintf("%d×%d", g.members[0].Rows, g.members[0].Cols) }},
	{column{"format", false}, 0, func(g *group) string { return g.members[0].Format }},
	{column{"SQNR dB", true}, 0, func(g *group) string { return decibels(g.mean(func(r measure.Result) float64 { return r.SQNR })) }},
	{column{"worst", true}, 0, func(g *group) string { return g.lossy(decibels(g.worst())) }},
	{column{"blocks dB", true}, 5, func(g *group) string {
		return g.lossy(decibels(g.mean(func(r measure.Result) float64 { return r.MeanBlockSQNR })))
	}},
	{column{"bias", true}, 3, func(g *group) string {
		return g.lossy(percent(g.mean(func(r measure.Result) float64 { return r.Bias })))
	}},
	{column{"saturated", true}, 2, func(g *group) string {
		return g.lossy(percent(g.share(func(r measure.Result) int64 { return r.Saturated })))
	}},
	{column{"flushed", true}, 1, func(g *group) string {
		return g.lossy(percent(g.share(func(r measure.Result) int64 { return r.Flushed })))
	}},
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

// lossy returns text, or nothing where every weight of the group is exact.
func (g *group) lossy(text string) string {
	if math.IsInf(g.worst(), 1) {
		return ""
	}
	return text
}

// printErrors prints the table of the errors of weights; those that are exact
// copies are counted in one line unless each weight has its own.
func printErrors(w io.Writer, results []verify.Tensor, each bool) error {
	groups, exact := grouped(results, each), 0
	if !each {
		groups = slices.DeleteFunc(groups, func(g *group) bool {
			if !math.IsInf(g.worst(), 1) {
				return false
			}
			exact += len(g.members)
			return true
		})
	}
	text := ""
	for most := len(errorColumns); most >= 0; most-- {
		var columns []column
		for _, c := range errorColumns {
			if c.spare <= most {
				columns = append(columns, c.column)
			}
		}
		t := newTable(columns...)
		for _, g := range groups {
			var row table.Row
			for _, c := range errorColumns {
				if c.spare <= most {
					row = append(row, c.text(g))
				}
			}
			t.AppendRow(row)
		}
		if exact > 0 {
			t.AppendFooter(table.Row{"exact copies", exact})
		}
		text = t.Render()
		if first, _, _ := strings.Cut(text, "\n"); !isTerminal(w) || utf8.RuneCountInString(first) <= terminalWidth(w) {
			break
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// tensorDocument is the error of a weight as JSON.
type tensorDocument struct {
	Name          string `json:"name"`
	Format        string `json:"format"`
	Rows          int    `json:"rows"`
	Cols          int    `json:"cols"`
	SQNR          number `json:"sqnr_db"`
	MeanBlockSQNR number `json:"mean_block_sqnr_db"`
	Cosine        number `json:"cosine"`
	MaxRelative   number `json:"max_relative"`
	Bias          number `json:"bias"`
	Saturated     int64  `json:"saturated"`
	Flushed       int64  `json:"flushed"`
	NonFinite     int64  `json:"nonfinite"`
	NonFiniteSrc  int64  `json:"nonfinite_source"`
}

func tensorDocuments(results []verify.Tensor) []tensorDocument {
	documents := make([]tensorDocument, len(results))
	for i, t := range results {
		r := t.Result
		documents[i] = tensorDocument{
			Name: t.Name, Format: t.Format, Rows: t.Rows, Cols: t.Cols,
			SQNR: number(r.SQNR), MeanBlockSQNR: number(r.MeanBlockSQNR), Cosine: number(r.Cosine), MaxRelative: number(r.MaxRelative), Bias: number(r.Bias),
			Saturated: r.Saturated, Flushed: r.Flushed, NonFinite: r.NonFinite, NonFiniteSrc: r.NonFiniteWant,
		}
	}
	return documents
}
