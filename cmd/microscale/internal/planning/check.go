// Package planning prints what the commands about hardware compute: the device table, checks of
// products, layouts of buffers, and costs.
package planning

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hardware/device"
)

// rateText writes a rate in FLOP/s as TFLOP/s, and - for an unknown one.
func rateText(f device.Figure) string {
	if !f.Known() {
		return "-"
	}
	return fmt.Sprintf("%.0f", f.Value/1e12)
}

// PrintDevices prints the table of devices.
func PrintDevices(w io.Writer) error {
	t := show.NewTable(show.Left("device"), show.Left("architecture"), show.Right("BF16"), show.Right("FP8"), show.Right("FP6"),
		show.Right("FP4"), show.Right("TB/s"))
	for _, d := range device.All() {
		t.AppendRow(table.Row{d.Name, d.Arch, rateText(d.BF16), rateText(d.FP8), rateText(d.FP6), rateText(d.FP4),
			fmt.Sprintf("%.3g", d.Bandwidth.Value/1e12)})
	}
	_, err := fmt.Fprintf(w, "Dense peaks in TFLOP/s; - is unknown or absent (--device NAME says which)\n\n%s\n", t.Render())
	return err
}

// PrintModes prints the rates of a device and the products that its architecture supports.
func PrintModes(w io.Writer, d *device.Device) error {
	var b strings.Builder
	width := show.TerminalWidth(w)
	steps := []show.Step{{"device", d.Product + ", " + d.Arch.String()}}
	for _, r := range rates(d) {
		text := fmt.Sprintf("%.4g %s", r.Value/1e12, r.unit)
		if !r.Known() {
			text = "unknown"
		}
		if r.Note != "" {
			text += " (" + r.Note + ")"
		}
		if r.Known() {
			text += "; " + r.Source.Kind + ": " + r.Source.Title
		}
		steps = append(steps, show.Step{r.name, text})
	}
	writeColumns(&b, width, 11, steps)
	for _, m := range d.Arch.Modes {
		fmt.Fprintf(&b, "\n%s, %s\n", m.Library, strings.Join(modeScalings(m), " or "))
		writeColumns(&b, width, 11, modeSteps(m))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A rate is a figure of a device with its name.
type rate struct {
	device.Figure
	name, unit string
}

func rates(d *device.Device) []rate {
	return []rate{{d.BF16, "BF16", "TFLOP/s"}, {d.FP8, "FP8", "TFLOP/s"}, {d.FP6, "FP6", "TFLOP/s"}, {d.FP4, "FP4", "TFLOP/s"},
		{d.Bandwidth, "memory", "TB/s"}}
}

func modeScalings(m device.Mode) []string {
	if len(m.Scalings) == 0 {
		return []string{"unscaled"}
	}
	var names []string
	for _, s := range m.Scalings {
		names = append(names, s.Name)
	}
	return names
}

func modeSteps(m device.Mode) []show.Step {
	steps := []show.Step{{"elements", strings.Join(flags.Names(m.Elements), ", ")}, {"layouts", joined(m.Layouts)}}
	var rules []string
	if m.RowBytes > 0 {
		rules = append(rules, fmt.Sprintf("contiguous dimensions are multiples of %d bytes", m.RowBytes))
	}
	if m.Narrow > 0 {
		rules = append(rules, fmt.Sprintf("those of FP6 and FP4 of %d elements", m.Narrow))
	}
	if m.Contraction > 0 {
		rules = append(rules, fmt.Sprintf("the summed dimension is a multiple of %d", m.Contraction))
	}
	if m.Outer > 0 {
		rules = append(rules, fmt.Sprintf("the others of %d", m.Outer))
	}
	for _, p := range m.NotBoth {
		rules = append(rules, p+" in one operand only")
	}
	if len(rules) > 0 {
		steps = append(steps, show.Step{"rules", strings.Join(rules, "; ")})
	}
	if m.Condition != "" {
		steps = append(steps, show.Step{"condition", m.Condition})
	}
	return append(steps, show.Step{"source", m.Source.Title})
}

func joined[T ~string](list []T) string {
	var names []string
	for _, l := range list {
		names = append(names, string(l))
	}
	return strings.Join(names, ", ")
}

// writeColumns writes steps with a first column of the given width.
func writeColumns(b *strings.Builder, width, first int, steps []show.Step) {
	for _, s := range steps {
		_ = show.PrintWrapped(b, s[0], first, width, s[1]) // a Builder does not fail
	}
}

// PrintAnswer prints the products, what is wrong with them, the costs of copies, what the
// libraries report, and the sources.
func PrintAnswer(w io.Writer, a device.Answer) error {
	var b strings.Builder
	width := show.TerminalWidth(w)
	verdict := "yes"
	if !a.OK {
		verdict = "no"
	}
	layer := fmt.Sprintf("input %d×%d %s, weight %d×%d %s", a.M, a.K, a.Input, a.N, a.K, a.Weight)
	if !a.Forward {
		layer += fmt.Sprintf(", gradient %d×%d %s", a.M, a.N, a.Grad)
	}
	writeColumns(&b, width, 11, []show.Step{
		{"device", a.Device.Product + ", " + a.Device.Arch.String()},
		{"layer", layer},
		{"runs", verdict},
	})
	fmt.Fprintf(&b, "\n%s\n", productsTable(a.Products))
	var problems, says []show.Step
	for _, p := range a.Products {
		for _, problem := range p.Problems {
			problems = append(problems, show.Step{p.Name, problem.String()})
		}
	}
	section(&b, width, "Problems", 11, problems)
	if len(a.Copies) > 0 {
		fmt.Fprintf(&b, "\nRowwise and columnwise copies\n\n%s\n", copiesTable(a.Copies))
	}
	for _, s := range a.Libraries {
		says = append(says, show.Step{s.Library, libraryText(s)})
	}
	section(&b, width, "Libraries", 20, says)
	section(&b, width, "Sources", 22, sourceSteps(a))
	_, err := io.WriteString(w, b.String())
	return err
}

func productsTable(products []device.Product) string {
	t := show.NewTable(show.Left("product"), show.Right("result"), show.Right("sum"), show.Left("layout"), show.Left("library"),
		show.Left("scales"), show.Left("transposed copies"))
	for _, p := range products {
		row := table.Row{p.Name, fmt.Sprintf("%d×%d", p.Rows, p.Cols), p.Sum}
		if p.Mode == nil {
			row = append(row, "-", "-", "-", "-")
		} else {
			row = append(row, p.Layout, p.Mode.Library, scalesText(p), transposesText(p))
		}
		t.AppendRow(row)
	}
	return t.Render()
}

// sourceSteps returns each source of an answer once, in the order of the report.
func sourceSteps(a device.Answer) []show.Step {
	var sources []*device.Source
	for _, p := range a.Products {
		for _, problem := range p.Problems {
			sources = append(sources, problem.Source)
		}
		if p.Mode != nil {
			sources = append(sources, p.Mode.Source)
		}
	}
	if len(a.Copies) > 0 {
		sources = append(sources, a.Copies[0].Options[0].Source)
	}
	for _, s := range a.Libraries {
		sources = append(sources, s.Source)
	}
	var steps []show.Step
	for i, s := range sources {
		if slices.Index(sources, s) == i {
			steps = append(steps, show.Step{s.Kind, s.Title + ", " + s.Ref})
		}
	}
	return steps
}

func section(b *strings.Builder, width int, title string, first int, steps []show.Step) {
	if len(steps) > 0 {
		fmt.Fprintf(b, "\n%s\n\n", title)
		writeColumns(b, width, first, steps)
	}
}

func libraryText(s device.Statement) string {
	text := s.Recipe
	if text != "" {
		text += ": "
	}
	if s.Says == "" {
		return text + "available"
	}
	return text + s.Says
}

func scalesText(p device.Product) string {
	if p.A.Scaling == p.B.Scaling {
		return p.A.Scaling
	}
	return p.A.Scaling + ", " + p.B.Scaling
}

func transposesText(p device.Product) string {
	var names []string
	for _, o := range []device.Operand{p.A, p.B} {
		if o.Transposed {
			names = append(names, o.Name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func copiesTable(copies []device.Copies) string {
	t := show.NewTable(show.Left("operand"), show.Left("option"), show.Right("read"), show.Right("written"), show.Right("kept"))
	for _, c := range copies {
		for _, o := range c.Options {
			row := table.Row{c.Operand, o.Name, "no", "", ""}
			if o.Available {
				row = table.Row{c.Operand, o.Name, show.BytesText(float64(o.Reads)), show.BytesText(float64(o.Writes)), show.BytesText(float64(o.Kept))}
			}
			t.AppendRow(row)
		}
	}
	return t.Render()
}
