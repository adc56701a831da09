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

// terminalSigns replaces typographic signs, and puts a standard error on a separate line.
var terminalSigns = strings.NewReplacer("−", "-", "–", "-", " ±", "\n±")

// TerminalText returns a cell of the table of a report with the signs of a terminal.
func TerminalText(cell string) string { return terminalSigns.Replace(cli.Printable(cell)) }

// PrintComparison prints the table of c, and the path of the report unless that is "".
func PrintComparison(w io.Writer, c *report.Comparison, path string) error {
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
				cells = append(cells, TerminalText(cell))
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
		fmt.Fprintf(&b, "report: %s\n", cli.Printable(path))
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
