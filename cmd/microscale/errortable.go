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

// An errorColumn is a column of the table of errors.
type errorColumn struct {
	column
	spare int
	text  func(g *group) string
}

// gainTitle is that of the column of SQNR beyond that without a search of scales.
const gainTitle = "gain dB"

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

// errorColumns are the columns of the table of errors, that of the gain where scales
// were searched. A terminal that is too narrow does without those that say least, the
// largest spare first.
var errorColumns = []errorColumn{
	{column{"weight", false}, 0, func(g *group) string { return printable(g.name) }},
	{column{"n", true}, 0, func(g *group) string { return strconv.Itoa(len(g.members)) }},
	{column{"shape", true}, 4, func(g *group) string { return fmt.Sprintf("%d×%d", g.members[0].Rows, g.members[0].Cols) }},
	{column{"format", false}, 0, func(g *group) string { return g.members[0].Format }},
	{column{"SQNR dB", true}, 0, (*group).sqnr},
	{column{gainTitle, true}, 0, (*group).gain},
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
	return decibels(g.mean(func(r measure.Result) float64 { return r.SQNR }))
}

// lossy returns text, or nothing where every finite value of the group is exact.
func (g *group) lossy(text string) string {
	if g.noLoss() {
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
			if !g.exact() {
				return false
			}
			exact += len(g.members)
			return true
		})
	}
	if len(groups) == 0 {
		_, err := fmt.Fprintln(w, allExact(exact))
		return err
	}
	text, all := "", errorColumns
	if !slices.ContainsFunc(results, func(t verify.Tensor) bool { return t.Nearest.Elements > 0 }) {
		all = slices.DeleteFunc(slices.Clone(errorColumns), func(c errorColumn) bool { return c.title == gainTitle })
	}
	for most := len(errorColumns); most >= 0; most-- {
		var columns []column
		for _, c := range all {
			if c.spare <= most {
				columns = append(columns, c.column)
			}
		}
		t := newTable(columns...)
		for _, g := range groups {
			var row table.Row
			for _, c := range all {
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

// allExact stands in place of a table that has no rows.
func allExact(weights int) string {
	switch weights {
	case 0:
		return "no weights"
	case 1:
		return "the only weight is an exact copy"
	}
	return fmt.Sprintf("all %d weights are exact copies", weights)
}

// mostNamed is how many weights are named that have values out of reach.
const mostNamed = 3

// printCounts prints a line for each of the weights that have values of a kind:
// "2 values of l.0.weight", and what line says of them. No more than mostNamed.
func printCounts(w io.Writer, results []verify.Tensor, prefix string, count func(measure.Result) int64, line func(t verify.Tensor, one bool) string) error {
	weights := 0
	var last verify.Tensor
	for _, t := range results {
		n := count(t.Result)
		if n == 0 {
			continue
		}
		if weights++; weights > mostNamed {
			last = t
			continue
		}
		if _, err := fmt.Fprintf(w, "%s%s of %s %s\n", prefix, counted(int(n), "value"), printable(t.Name), line(t, n == 1)); err != nil {
			return err
		}
	}
	if weights <= mostNamed {
		return nil
	}
	_, err := fmt.Fprintf(w, "%svalues of %s %s\n", prefix, counted(weights-mostNamed, "more weight"), line(last, false))
	return err
}

// printSourceNonFinite says where the source holds NaN or Inf.
func printSourceNonFinite(w io.Writer, results []verify.Tensor, src string) error {
	return printCounts(w, results, "", func(r measure.Result) int64 { return r.NonFiniteWant }, func(_ verify.Tensor, one bool) string {
		verb := "are"
		if one {
			verb = "is"
		}
		return verb + " NaN or Inf in " + printable(src)
	})
}

// warnNonFinite says which weights have values that do not decode to numbers: the
// result is written all the same, and verify refuses it.
func warnNonFinite(w io.Writer, results []verify.Tensor) {
	_ = printCounts(w, results, "microscale: warning: ", func(r measure.Result) int64 { return r.NonFinite }, func(t verify.Tensor, one bool) string {
		verb, decode := "are", "decode"
		if one {
			verb, decode = "is", "decodes"
		}
		if t.Result.NonFiniteWant > 0 { // the NaN of a block's scale
			return fmt.Sprintf("%s finite and %s to NaN or Inf", verb, decode)
		}
		return fmt.Sprintf("%s beyond %s and %s to Inf", verb, t.Format, decode)
	}) // standard error, which nobody has to read
}

// tensorDocument is the error of a weight as JSON.
type tensorDocument struct {
	Name          string  `json:"name"`
	Format        string  `json:"format"`
	Rows          int     `json:"rows"`
	Cols          int     `json:"cols"`
	SQNR          number  `json:"sqnr_db"`
	MeanBlockSQNR number  `json:"mean_block_sqnr_db"`
	NearestSQNR   *number `json:"nearest_sqnr_db,omitempty"` // without a search of scales, where that was measured
	Cosine        number  `json:"cosine"`
	MaxRelative   number  `json:"max_relative"`
	Bias          number  `json:"bias"`
	Saturated     int64   `json:"saturated"`
	Flushed       int64   `json:"flushed"`
	NonFinite     int64   `json:"nonfinite"`
	NonFiniteSrc  int64   `json:"nonfinite_source"`
}

func nearestSQNR(t verify.Tensor) *number {
	if t.Nearest.Elements == 0 {
		return nil
	}
	return new(number(t.Nearest.SQNR))
}

func tensorDocuments(results []verify.Tensor) []tensorDocument {
	documents := make([]tensorDocument, len(results))
	for i, t := range results {
		r := t.Result
		documents[i] = tensorDocument{
			Name: t.Name, Format: t.Format, Rows: t.Rows, Cols: t.Cols,
			SQNR: number(r.SQNR), MeanBlockSQNR: number(r.MeanBlockSQNR), Cosine: number(r.Cosine), MaxRelative: number(r.MaxRelative), Bias: number(r.Bias),
			NearestSQNR: nearestSQNR(t),
			Saturated:   r.Saturated, Flushed: r.Flushed, NonFinite: r.NonFinite, NonFiniteSrc: r.NonFiniteWant,
		}
	}
	return documents
}
