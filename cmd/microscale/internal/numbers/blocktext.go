package numbers

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

// Headline describes the format.
func Headline(f quant.Format) string {
	text := fmt.Sprintf("%s: %s elements, one %s scale per %s", f.Name, f.Element, f.Scale, BlockText(f.Block))
	if f.Global {
		text += ", an f32 scale for the tensor"
	}
	return text
}

// PrintExplanations prints the steps of one profile, the codes of several, or a JSON
// document.
func PrintExplanations(w io.Writer, f quant.Format, all []Explanation, asJSON bool) error {
	switch {
	case asJSON:
		return show.PrintJSON(w, map[string]any{"format": f.Name, "profiles": all})
	case len(all) == 1:
		return printSteps(w, &all[0])
	}
	return printComparison(w, f, all)
}

// printSteps prints all blocks of one profile.
func printSteps(w io.Writer, e *Explanation) error {
	f := e.quantizer.Format
	var b strings.Builder
	width := show.TerminalWidth(w)
	show.WriteSteps(&b, width, []show.Step{{"format", Headline(f)}, {"profile", e.Profile + ": " + e.doc}})
	if f.Global {
		show.WriteSteps(&b, width, e.globalSteps())
	}
	for i := range e.Blocks {
		d := &e.Blocks[i]
		fmt.Fprintf(&b, "\n%s\n", blockTitle(d, i, len(e.Blocks), f))
		show.WriteSteps(&b, width, e.steps(d))
		fmt.Fprintf(&b, "\n%s\n\nSQNR %s\n", elementTable(d, f, width), show.SQNR(float64(d.SQNR), " dB"))
	}
	if len(e.Blocks) > 1 {
		fmt.Fprintf(&b, "\nSQNR of all blocks %s\n", show.SQNR(float64(e.SQNR), " dB"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// blockTitle returns the index and size of block d, and its padding.
func blockTitle(d *blockDetail, i, blocks int, f quant.Format) string {
	n := len(d.Elements)
	title := "One block"
	if blocks > 1 {
		title = fmt.Sprintf("Block %d of %d", i+1, blocks)
	}
	title += fmt.Sprintf(": %d values", n)
	if n == 1 {
		title = strings.TrimSuffix(title, "s")
	}
	if f.Block.Cols > n {
		title += fmt.Sprintf(", padded with zeros to %d", f.Block.Cols)
	}
	return title
}

// elementTable returns the values of a block as a table, with binary codes if they fit
// the terminal.
func elementTable(d *blockDetail, f quant.Format, width int) string {
	columns := []show.Column{show.Right("#"), show.Right("value"), show.Right("÷ scale"), show.Left("between"),
		show.Left(fieldNames(f.Element)),
		show.Left("code"), show.Right("decoded"), show.Right("error"), show.Left("")}
	t := show.NewTable(columns...)
	for i, e := range d.Elements {
		t.AppendRow(table.Row{d.First + i, shortText(e.value), sixDigits(e.quotient), betweenText(e), bitsText(e.code, f.Element), e.Code,
			shortText(e.decoded), percentText(e.value, e.decoded), strings.Join(e.Marks, ", ")})
	}
	drawn := t.Render()
	if rule := strings.Split(drawn, "\n")[1]; text.StringWidth(rule) > width {
		const binary = 5
		t.SetColumnConfigs(append(show.NumericColumns(columns), table.ColumnConfig{Number: binary, Hidden: true}))
		drawn = t.Render()
	}
	return drawn
}

// betweenText returns the neighbors of a quotient, the smaller first.
func betweenText(e elementDetail) string {
	lower, upper := float64(e.Lower), float64(e.Upper)
	switch {
	case e.quotient != e.quotient:
		return "-"
	case lower == upper:
		return "exact"
	case math.IsNaN(upper):
		return fmt.Sprintf("beyond %.5g", math.Copysign(lower, float64(e.quotient)))
	case e.quotient < 0:
		return fmt.Sprintf("%.5g … %.5g", -upper, 0-lower)
	}
	return fmt.Sprintf("%.5g … %.5g", lower, upper)
}

func sixDigits(v float32) string { return fmt.Sprintf("%.6g", v) }

// BlockText returns the shape of a block: rows × columns, row, or tensor.
func BlockText(s quant.Shape) string {
	switch {
	case s == quant.Shape{}:
		return "tensor"
	case s.Cols == 0 && s.Rows == 1:
		return "row"
	}
	return fmt.Sprintf("%d×%d", s.Rows, s.Cols)
}
