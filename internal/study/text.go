package study

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/report"
)

var nan = math.NaN()

// typed has the signs of a terminal in place of a typesetter's, and a standard error
// on a line of its own.
var typed = strings.NewReplacer("−", "-", "–", "-", " ±", "\n±")

// Typed returns a cell of a report's table with the signs of a terminal.
func Typed(cell string) string { return typed.Replace(cli.Printable(cell)) }

// PrintComparisonOfRecipes prints the table, and where the report is if there is one.
func PrintComparisonOfRecipes(w io.Writer, c *report.Comparison, path string) error {
	data := c.Table()
	var columns []cli.Column
	for _, c := range data.Columns {
		if c.Short != "" {
			columns = append(columns, cli.Column{Title: c.Short, Numeric: c.Numeric})
		}
	}
	t := cli.NewTable(columns...)
	for _, row := range data.Rows {
		var cells table.Row
		for i, cell := range row {
			if data.Columns[i].Short != "" {
				cells = append(cells, Typed(cell))
			}
		}
		t.AppendRow(cells)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", t.Render())
	for _, r := range c.Recipes {
		if r.Failed != "" {
			fmt.Fprintf(&b, "%s did not finish: %s\n", cli.Printable(r.Name), r.Failed)
		}
	}
	if text := noiseText(c); text != "" {
		_ = cli.PrintWrapped(&b, "", 0, 80, text) // a Builder does not fail
	}
	fmt.Fprintf(&b, "%s\n", c.Subtitle)
	if path != "" {
		fmt.Fprintf(&b, "the report is in %s\n", cli.Printable(path))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// noiseText names the recipes whose gap is within the noise, or "" if there are none.
func noiseText(c *report.Comparison) string {
	var within []string
	largest := 0.
	for i := range c.Recipes {
		r := &c.Recipes[i]
		if r.Name != c.Baseline && r.Failed == "" && c.Within(r) {
			within = append(within, cli.Printable(r.Name))
			largest = max(largest, c.Noise(r))
		}
	}
	if len(within) == 0 {
		return ""
	}
	return fmt.Sprintf("gaps below %.1f%% may be chance (two standard errors): %s", 100*largest, strings.Join(within, ", "))
}
