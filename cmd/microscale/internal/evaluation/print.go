package evaluation

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// Print prints the result as text or JSON.
func (r *Evaluated) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, r.Document())
	}
	var b strings.Builder
	loss := r.loss()
	fmt.Fprintf(&b, "%s: %.4f nats per token, perplexity %s, %.4f bits per byte\n", show.Printable(r.Model), loss.NLL.Value,
		meanText(loss.Perplexity, 3), r.bitsPerByte(loss))
	fmt.Fprintf(&b, "on %s: %s, sha256 %s\n", show.Printable(r.document.path), show.Counted(r.tokens, "token"), r.document.digest)
	fmt.Fprintf(&b, "method %s: %s of %d tokens, %d scored, in %s\n", r.Method.Name, show.Counted(r.windows, "window"), r.Context, loss.Scored,
		r.time())
	if text := r.lowered(); text != "" {
		fmt.Fprintf(&b, "%s\n", text)
	}
	switch {
	case r.Reference != "":
		r.printDivergence(&b)
		if r.against != nil {
			fmt.Fprintln(&b, r.against)
		}
		if len(r.Beside) > 0 {
			fmt.Fprintf(&b, "\n%s\n", r.formatTable().Render())
		}
	case len(r.Formats) > 0:
		fmt.Fprintf(&b, "\n%s\n", r.formatTable().Render())
	}
	if r.Layers {
		for i := range r.result.Layers {
			fmt.Fprintf(&b, "\nrelative squared errors of %s by layer: of the output, and of linear layers for the input of the original\n%s\n",
				show.Printable(r.name(i)), layerTable(r.result.Layers[i]).Render())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lowered describes the formats of the head and of keys and values, if they were quantized here.
func (r *Evaluated) lowered() string {
	var list []string
	if f := r.Head.Format; f.Element != nil {
		list = append(list, "head in "+f.Name)
	}
	if r.Cache.Element != nil {
		list = append(list, "keys and values in "+r.Cache.Name)
	}
	return strings.Join(list, ", ")
}

// meanText returns a mean with its standard error.
func meanText(m windows.Mean, digits int) string {
	return fmt.Sprintf("%.*f ± %.*f", digits, m.Value, digits, m.Error)
}

// printDivergence prints the divergence from the reference.
func (r *Evaluated) printDivergence(b *strings.Builder) {
	d := r.result.Comparisons[0].Divergence()
	fmt.Fprintf(b, "\nbeside %s: %.4f nats per token, perplexity %s\n", show.Printable(r.Reference), d.Original.NLL.Value,
		meanText(d.Original.Perplexity, 3))
	t := show.NewTable(show.Left(""), show.Right("mean"), show.Right("median"), show.Right("90%"), show.Right("95%"), show.Right("99%"),
		show.Right("99.9%"), show.Right("max"))
	for _, row := range []struct {
		name string
		d    *windows.Distribution
	}{{"KL divergence (nats)", &d.KL}, {"Δp of the right token", &d.DeltaP}} {
		cells := table.Row{row.name, fmt.Sprintf("%.6f ± %.6f", row.d.Value, row.d.Error)}
		for _, p := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			cells = append(cells, fmt.Sprintf("%.6f", row.d.At(p)))
		}
		t.AppendRow(cells)
	}
	fmt.Fprintf(b, "%s\n", t.Render())
	fmt.Fprintf(b, "same top token %s; RMS of Δp %.6f; ln of the ratio of perplexities %s\n", shareText(d.SameTop), d.DeltaP.RMS(),
		meanText(d.LnRatio, 6))
}

// shareText returns a share with its standard error in percent.
func shareText(m windows.Mean) string {
	return meanText(windows.Mean{Value: 100 * m.Value, Error: 100 * m.Error}, 2) + " %"
}

// formatTable returns the table of formats, or of models, in their order.
func (r *Evaluated) formatTable() table.Writer {
	return report.Terminal(r.results(), show.Printable)
}

// layerTable returns the table of errors by layer, with a column for each linear layer.
func layerTable(layers []windows.LayerErrors) table.Writer {
	names := linearNames(layers)
	columns := []show.Column{show.Right("layer"), show.Right("output")}
	for _, name := range names {
		columns = append(columns, show.Right(name))
	}
	t := show.NewTable(columns...)
	for l, e := range layers {
		cells := table.Row{l, errorText(e.Output)}
		for _, name := range names {
			cell := ""
			for _, linear := range e.Linears {
				if shortName(linear.Name) == name {
					cell = errorText(linear.Error)
				}
			}
			cells = append(cells, cell)
		}
		t.AppendRow(cells)
	}
	return t
}

func errorText(e windows.Error) string { return fmt.Sprintf("%.2e", e.Relative()) }

// shortName returns the name of a linear layer within its layer: model.layers.3.mlp.down_proj is
// mlp.down_proj.
func shortName(module string) string {
	_, rest, ok := strings.Cut(module, ".layers.")
	if !ok {
		return module
	}
	_, name, _ := strings.Cut(rest, ".")
	return name
}

// linearNames returns the short names of the linear layers of all layers, in the order in which they
// compute.
func linearNames(layers []windows.LayerErrors) (names []string) {
	seen := map[string]bool{}
	for _, e := range layers {
		for _, linear := range e.Linears {
			if name := shortName(linear.Name); !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}
