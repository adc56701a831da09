package numbers

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

// differs marks codes and scales that differ from those of the first profile.
const differs = "*"

// printComparison prints the codes of several profiles side by side.
func printComparison(w io.Writer, f quant.Format, all []Explanation) error {
	var having []Explanation
	var lacking []string
	for _, e := range all {
		if e.Defined {
			having = append(having, e)
		} else {
			lacking = append(lacking, e.Profile)
		}
	}
	var b strings.Builder
	width := show.TerminalWidth(w)
	show.WriteSteps(&b, width, []show.Step{{"format", Headline(f)}})
	different := false
	for i := range having[0].Blocks {
		d := &having[0].Blocks[i]
		fmt.Fprintf(&b, "\n%s\n", blockTitle(d, i, len(having[0].Blocks), f))
		show.WriteSteps(&b, width, []show.Step{{"amax", amaxText(d)}})
		b.WriteString("\n")
		t, blockDiffers := comparisonTable(having, i)
		different = different || blockDiffers
		fmt.Fprintf(&b, "%s\n", t.Render())
	}
	b.WriteString("\n")
	if different {
		fmt.Fprintf(&b, "%s differs from %s\n", differs, having[0].Profile)
	} else {
		b.WriteString("all profiles agree on every scale and code\n")
	}
	if len(lacking) > 0 {
		fmt.Fprintf(&b, "%s is not supported by %s\n", f.Name, strings.Join(lacking, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comparisonTable returns block i as a table: a column for each profile; rows for the
// scale, each value, and the SQNR. It reports whether the profiles differ.
func comparisonTable(all []Explanation, i int) (t table.Writer, different bool) {
	columns := []show.Column{show.Right("#"), show.Right("value")}
	for _, e := range all {
		columns = append(columns, show.Left(strings.Replace(e.Profile, "-", "-\n", 1)))
	}
	t = show.NewTable(columns...)
	row := func(number, value any, text func(e *Explanation) string) {
		r := table.Row{number, value}
		first := text(&all[0])
		for j := range all {
			cell := text(&all[j])
			if cell != first {
				cell += " " + differs
				different = true
			}
			r = append(r, cell)
		}
		t.AppendRow(r)
	}
	if all[0].quantizer.Format.Global {
		row("", "global", func(e *Explanation) string { return sixDigits(float32(e.Global)) })
	}
	row("", "scale", func(e *Explanation) string { return e.Blocks[i].ScaleCode })
	for j := range all[0].Blocks[i].Elements {
		d := &all[0].Blocks[i]
		row(d.First+j, sixDigits(d.Elements[j].value), func(e *Explanation) string { return e.Blocks[i].Elements[j].Code })
	}
	footer := table.Row{"", "SQNR dB"}
	for j := range all {
		footer = append(footer, show.SQNR(float64(all[j].Blocks[i].SQNR), ""))
	}
	t.AppendFooter(footer)
	return t, different
}
