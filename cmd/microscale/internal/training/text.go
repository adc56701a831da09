package training

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

var nan = math.NaN()

// terminalSigns replaces typographic signs, and puts a standard error on a separate line.
var terminalSigns = strings.NewReplacer("−", "-", "–", "-", " ±", "\n±")

// TerminalText returns a cell of the table of a report with the signs of a terminal.
func TerminalText(cell string) string { return terminalSigns.Replace(show.Printable(cell)) }

// PrintComparison prints the table of c, and the path of the report unless that is "".
func PrintComparison(w io.Writer, c *report.Comparison, path string) error {
	t := report.Terminal(c.Table(), TerminalText)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", t.Render())
	for _, r := range c.Recipes {
		if r.Failed != "" {
			fmt.Fprintf(&b, "%s did not finish: %s\n", show.Printable(r.Name), r.Failed)
		}
	}
	if text := noiseText(c); text != "" {
		_ = show.PrintWrapped(&b, "", 0, 80, text) // a Builder does not fail
	}
	fmt.Fprintf(&b, "%s\n", c.Subtitle)
	if path != "" {
		fmt.Fprintf(&b, "report: %s\n", show.Printable(path))
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
			within = append(within, show.Printable(r.Name))
			largest = max(largest, c.Noise(r))
		}
	}
	if len(within) == 0 {
		return ""
	}
	return fmt.Sprintf("gaps below %.1f%% may be chance (two standard errors): %s", 100*largest, strings.Join(within, ", "))
}
