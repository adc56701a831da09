package planning

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/hardware/device"
)

// valueText writes a figure in its unit.
func valueText(f cost.Figure) string {
	switch {
	case math.IsNaN(f.Value):
		return "unknown"
	case f.Unit == "B":
		return show.BytesText(f.Value)
	case f.Unit == "s":
		return show.DurationText(f.Value)
	case f.Unit == "rows":
		return fmt.Sprintf("%.0f rows", f.Value)
	case f.Unit == "":
		return fmt.Sprintf("%.4g", f.Value)
	}
	return fmt.Sprintf("%.4g %s", f.Value, f.Unit)
}

// PrintEstimate prints the figures of an estimate, with their formulas if explain is set.
func PrintEstimate(w io.Writer, e *cost.Estimate, explain, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, estimateDocument(e))
	}
	var b strings.Builder
	width := show.TerminalWidth(w)
	writeColumns(&b, width, 10, []show.Step{
		{"recipe", e.Recipe.Name + ": " + e.Recipe.Doc},
		{"device", e.Device.Product + ", " + e.Device.Arch.String()},
		{"model", fmt.Sprintf("%s as %.4g weights of %d×%d, %d tokens a step", show.ParametersText(e.Params),
			e.Params/float64(e.Width)/float64(e.Width), e.Width, e.Width, e.Tokens)},
	})
	for _, p := range e.Products {
		if len(p.Problems) > 0 {
			writeColumns(&b, width, 10, []show.Step{{p.Name, "does not run: " + p.Problems[0].String()}})
		}
	}
	for _, s := range e.Sections {
		if len(s.Figures) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n\n", s.Title)
		for _, f := range s.Figures {
			fmt.Fprintf(&b, "%-36s %12s\n", f.Name, valueText(f))
			if explain {
				_ = show.PrintWrapped(&b, "", 4, width, f.Formula) // a Builder does not fail
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type costFigure struct {
	Name    string      `json:"name"`
	Value   show.Number `json:"value"` // null: unknown
	Unit    string      `json:"unit"`
	Formula string      `json:"formula"`
}

type costSection struct {
	Title   string       `json:"title"`
	Figures []costFigure `json:"figures"`
}

func estimateDocument(e *cost.Estimate) any {
	var list []costSection
	for _, s := range e.Sections {
		d := costSection{s.Title, []costFigure{}}
		for _, f := range s.Figures {
			d.Figures = append(d.Figures, costFigure{f.Name, show.Number(f.Value), f.Unit, f.Formula})
		}
		list = append(list, d)
	}
	return map[string]any{"recipe": e.Recipe.Name, "device": e.Device.Name, "parameters": e.Params, "tokens": e.Tokens, "width": e.Width,
		"sections": list}
}

// PrintTables prints the documents' tables.
func PrintTables(w io.Writer, tables []cost.Table, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, map[string]any{"tables": tables})
	}
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		var columns []show.Column
		for k, title := range t.Columns {
			if k == 0 {
				columns = append(columns, show.Left(title))
			} else {
				columns = append(columns, show.Right(title))
			}
		}
		out := show.NewTable(columns...)
		for _, cells := range t.Rows {
			var row table.Row
			for _, c := range cells {
				row = append(row, c)
			}
			out.AppendRow(row)
		}
		fmt.Fprintf(&b, "%s\n\n%s\n", t.Title, out.Render())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// EstimateChart draws the communication of e by the number of ranks, or for one rank the speedup of
// square products on its device, as an SVG. It returns an error for a device whose rates are unknown.
func EstimateChart(e *cost.Estimate) ([]byte, error) {
	if e.Network != nil {
		return scalingChart(e)
	}
	return speedupChart(e.Device)
}

// speedupChart draws the speedup of square products over BF16 by size, quantization included,
// as an SVG.
func speedupChart(d *device.Device) ([]byte, error) {
	c := report.Chart{Title: "Square products on " + d.Product + ": roofline, both operands quantized",
		X: "rows, columns and summed dimension", Y: "time in BF16 / time", PowersOfTwo: true}
	var sizes []float64
	for s := 256.0; s <= 32768; s *= 2 {
		sizes = append(sizes, s)
	}
	formats, speedups := cost.Speedups(d, sizes)
	for i, f := range formats {
		c.Lines = append(c.Lines, report.Line{Name: f.Name, X: sizes, Y: speedups[i]})
	}
	return c.SVG()
}

// scalingChart draws the seconds of communication in a step by the number of ranks, as an SVG.
func scalingChart(e *cost.Estimate) ([]byte, error) {
	c := report.Chart{Title: fmt.Sprintf("Communication of a step: %s, %s, nodes of %d ranks", show.ParametersText(e.Params), e.Recipe.Name,
		e.Network.PerNode), X: "ranks", Y: "seconds", PowersOfTwo: true}
	var ranks []float64
	for r := 8.0; r <= 4096; r *= 2 {
		ranks = append(ranks, r)
	}
	names, seconds := e.Scaling(*e.Network, ranks)
	for i, name := range names {
		c.Lines = append(c.Lines, report.Line{Name: name, X: ranks, Y: seconds[i]})
	}
	return c.SVG()
}
