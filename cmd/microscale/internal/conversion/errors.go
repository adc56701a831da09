package conversion

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// An errorColumn is a column of the table of errors.
type errorColumn struct {
	show.Column
	spare int
	text  func(g *group) string
}

// gainTitle heads the SQNR gained by a scale search.
const gainTitle = "gain dB"

// errorColumns are the columns of the error table. A narrow terminal drops columns,
// the largest spare first. The gain appears only after a scale search.
var errorColumns = []errorColumn{
	{show.Left("weight"), 0, func(g *group) string { return show.Printable(g.name) }},
	{show.Right("n"), 0, func(g *group) string { return strconv.Itoa(len(g.members)) }},
	{show.Right("shape"), 4, (*group).shape},
	{show.Left("format"), 0, func(g *group) string { return g.members[0].Format }},
	{show.Right("SQNR dB"), 0, (*group).sqnr},
	{show.Right(gainTitle), 0, (*group).gain},
	{show.Right("worst"), 0, func(g *group) string { return g.lossy(show.Decibels(g.worst())) }},
	{show.Right("blocks dB"), 5, func(g *group) string {
		return g.lossy(show.Decibels(g.mean(func(r measure.Result) float64 { return r.MeanBlockSQNR })))
	}},
	{show.Right("bias"), 3, func(g *group) string {
		return g.lossy(show.Percent(g.mean(func(r measure.Result) float64 { return r.Bias })))
	}},
	{show.Right("saturated"), 2, func(g *group) string {
		return g.lossy(show.Percent(g.share(func(r measure.Result) int64 { return r.Saturated })))
	}},
	{show.Right("flushed"), 1, func(g *group) string {
		return g.lossy(show.Percent(g.share(func(r measure.Result) int64 { return r.Flushed })))
	}},
}

// printErrors prints the error table, a row for each group, or for each weight with
// each. Without each, the footer has exact copies, and one row for all that is rounded
// beside blocks.
func printErrors(w io.Writer, results []verify.Tensor, each bool) error {
	groups, exact := grouped(results, each), 0
	var rounded []*group
	if !each {
		groups = slices.DeleteFunc(groups, func(g *group) bool {
			if !g.exact() {
				return false
			}
			exact += len(g.members)
			return true
		})
		groups, rounded = foldRounded(groups)
	}
	if len(groups) == 0 {
		_, err := fmt.Fprintln(w, allExact(exact))
		return err
	}
	text, all := "", errorColumns
	if !slices.ContainsFunc(results, func(t verify.Tensor) bool { return t.Nearest.Elements > 0 }) {
		all = slices.DeleteFunc(slices.Clone(errorColumns), func(c errorColumn) bool { return c.Title == gainTitle })
	}
	for most := len(errorColumns); most >= 0; most-- {
		var columns []show.Column
		for _, c := range all {
			if c.spare <= most {
				columns = append(columns, c.Column)
			}
		}
		t := show.NewTable(columns...)
		row := func(g *group) (row table.Row) {
			for _, c := range all {
				if c.spare <= most {
					row = append(row, c.text(g))
				}
			}
			return row
		}
		for _, g := range groups {
			t.AppendRow(row(g))
		}
		for _, g := range rounded {
			t.AppendFooter(row(g))
		}
		if exact > 0 {
			t.AppendFooter(table.Row{"exact copies", exact})
		}
		text = t.Render()
		if first, _, _ := strings.Cut(text, "\n"); !show.IsTerminal(w) || utf8.RuneCountInString(first) <= show.TerminalWidth(w) {
			break
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// allExact returns the text that replaces an empty table.
func allExact(weights int) string {
	switch weights {
	case 0:
		return "no weights"
	case 1:
		return "the only weight is an exact copy"
	}
	return fmt.Sprintf("all %d weights are exact copies", weights)
}
