package numbers

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/quant"
)

// differs marks a code or scale that is not that of the first profile.
const differs = "*"

// PrintComparison shows the codes of all profiles side by side, block by block.
func PrintComparison(w io.Writer, f quant.Format, all []Explanation) error {
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
	width := cli.TerminalWidth(w)
	cli.WriteSteps(&b, width, []cli.Step{{"format", headline(f)}})
	different := false
	for i := range having[0].Blocks {
		d := &having[0].Blocks[i]
		fmt.Fprintf(&b, "\n%s\n", blockTitle(d, i, len(having[0].Blocks), f))
		cli.WriteSteps(&b, width, []cli.Step{{"amax", amaxText(d)}})
		b.WriteString("\n")
		t, blockDiffers := comparisonTable(having, i)
		different = different || blockDiffers
		fmt.Fprintf(&b, "%s\n", t.Render())
	}
	b.WriteString("\n")
	if different {
		fmt.Fprintf(&b, "%s not what %s has\n", differs, having[0].Profile)
	} else {
		b.WriteString("all profiles agree on every scale and code\n")
	}
	if len(lacking) > 0 {
		verb := "have"
		if len(lacking) == 1 {
			verb = "has"
		}
		fmt.Fprintf(&b, "%s %s no %s here\n", strings.Join(lacking, ", "), verb, f.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comparisonTable shows block i: a row for the scale, one for each value, one
// for the error; a column for each profile.
func comparisonTable(all []Explanation, i int) (t table.Writer, different bool) {
	columns := []cli.Column{cli.Right("#"), cli.Right("value")}
	for _, e := range all {
		columns = append(columns, cli.Left(strings.Replace(e.Profile, "-", "-\n", 1)))
	}
	t = cli.NewTable(columns...)
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
		footer = append(footer, strings.TrimSuffix(decibelText(float64(all[j].Blocks[i].SQNR)), " dB"))
	}
	t.AppendFooter(footer)
	return t, different
}
