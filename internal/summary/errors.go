package summary

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// An errorColumn is a column of the table of errors.
type errorColumn struct {
	cli.Column
	spare int
	text  func(g *group) string
}

// gainTitle heads the SQNR gained by a scale search.
const gainTitle = "gain dB"

// errorColumns are the columns of the error table. A narrow terminal drops columns,
// the largest spare first. The gain appears only after a scale search.
var errorColumns = []errorColumn{
	{cli.Left("weight"), 0, func(g *group) string { return cli.Printable(g.name) }},
	{cli.Right("n"), 0, func(g *group) string { return strconv.Itoa(len(g.members)) }},
	{cli.Right("shape"), 4, func(g *group) string { return fmt.Sprintf("%d×%d", g.members[0].Rows, g.members[0].Cols) }},
	{cli.Left("format"), 0, func(g *group) string { return g.members[0].Format }},
	{cli.Right("SQNR dB"), 0, (*group).sqnr},
	{cli.Right(gainTitle), 0, (*group).gain},
	{cli.Right("worst"), 0, func(g *group) string { return g.lossy(cli.Decibels(g.worst())) }},
	{cli.Right("blocks dB"), 5, func(g *group) string {
		return g.lossy(cli.Decibels(g.mean(func(r measure.Result) float64 { return r.MeanBlockSQNR })))
	}},
	{cli.Right("bias"), 3, func(g *group) string {
		return g.lossy(cli.Percent(g.mean(func(r measure.Result) float64 { return r.Bias })))
	}},
	{cli.Right("saturated"), 2, func(g *group) string {
		return g.lossy(cli.Percent(g.share(func(r measure.Result) int64 { return r.Saturated })))
	}},
	{cli.Right("flushed"), 1, func(g *group) string {
		return g.lossy(cli.Percent(g.share(func(r measure.Result) int64 { return r.Flushed })))
	}},
}

// printErrors prints the error table, a row for each group, or for each weight with
// each. Without each, exact copies share the footer.
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
		all = slices.DeleteFunc(slices.Clone(errorColumns), func(c errorColumn) bool { return c.Title == gainTitle })
	}
	for most := len(errorColumns); most >= 0; most-- {
		var columns []cli.Column
		for _, c := range all {
			if c.spare <= most {
				columns = append(columns, c.Column)
			}
		}
		t := cli.NewTable(columns...)
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
		if first, _, _ := strings.Cut(text, "\n"); !cli.IsTerminal(w) || utf8.RuneCountInString(first) <= cli.TerminalWidth(w) {
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
