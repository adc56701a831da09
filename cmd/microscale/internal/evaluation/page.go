package evaluation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/limits"
)

// Replaceable returns an error if a report cannot be written to a file: it holds something else, or no
// file can be created in its directory.
func Replaceable(path string) error {
	err := report.CheckReport(path)
	if errors.Is(err, fs.ErrNotExist) {
		return creatable("a report", path)
	}
	if err != nil {
		return fmt.Errorf("%w: name another file", err)
	}
	return nil
}

// creatable returns an error if no file can be created in the directory of path.
func creatable(what, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".microscale-*")
	if err != nil {
		remedy := "name a file elsewhere"
		if errors.Is(err, fs.ErrNotExist) {
			remedy = "create the directory, or name another"
		}
		return fmt.Errorf("write %s: %s: %w: %s", what, show.Printable(filepath.Dir(path)), limits.Cause(err), remedy)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// WriteReport writes the result as a page, and replaces an earlier report atomically. command is the
// command line.
func (r *Evaluated) WriteReport(path, command string) error {
	page, err := r.page(command).HTML()
	if err != nil {
		return err
	}
	if err := Replaceable(path); err != nil {
		return err
	}
	if err := report.ReplaceReport(path, page); err != nil {
		return fmt.Errorf("write a report: %s: %w", show.Printable(path), limits.Cause(err))
	}
	return nil
}

// page returns the content of the page.
func (r *Evaluated) page(command string) *report.Divergence {
	d := &report.Divergence{
		Title: "Evaluation of " + r.Model,
		Subtitle: fmt.Sprintf("%s of %s, method %s: %s of %d tokens, %d scored", show.Counted(r.tokens, "token"), r.document.path,
			r.Method.Name, show.Counted(r.windows, "window"), r.Context, r.loss().Scored),
		Results: r.results(),
		How: []report.Fact{
			{Name: "command", Text: command, Code: true}, {Name: "version", Text: show.Version()},
			{Name: "SHA-256 of the text", Text: r.document.digest, Code: true}, {Name: "time", Text: r.time()},
		},
	}
	for i, layers := range r.result.Layers {
		m := report.Diverging{Name: r.name(i)}
		for _, e := range layers {
			m.Layers = append(m.Layers, layerError(e))
		}
		d.Models = append(d.Models, m)
	}
	return d
}

func layerError(e windows.LayerErrors) report.LayerError {
	l := report.LayerError{Output: e.Output.Relative()}
	for _, linear := range e.Linears {
		l.Linears = append(l.Linears, report.LinearError{Name: shortName(linear.Name), Error: linear.Error.Relative()})
	}
	return l
}

// name returns the name of model i: of its format, or of the checkpoint.
func (r *Evaluated) name(i int) string {
	switch {
	case len(r.Formats) > 0:
		return r.Formats[i].Name
	case i > 0:
		return r.Beside[i-1]
	}
	return r.Model
}

// results returns a row for the original and for each model.
func (r *Evaluated) results() report.Table {
	t := report.Table{Columns: []report.Column{
		{Title: "model", Short: "model"},
		{Title: "bits", Short: "bits", Doc: "per weight of linear layers", Numeric: true},
		{Title: "perplexity", Short: "perplexity", Doc: "with its standard error", Numeric: true},
		{Title: "KL divergence", Short: "KL divergence", Doc: "mean in nats, with its standard error", Numeric: true},
		{Title: "median", Doc: "of the KL divergence", Numeric: true},
		{Title: "99%", Short: "99%", Doc: "percentile of the KL divergence", Numeric: true},
		{Title: "same top", Short: "same top", Doc: "share of tokens for which both prefer the same token", Numeric: true},
		{Title: "RMS of Δp", Doc: "change of the probability of the right token", Numeric: true},
		{Title: "size", Short: "size", Doc: "weights of linear layers in the format, all others in BF16", Numeric: true},
	}}
	for i, c := range r.result.Comparisons {
		d := c.Divergence()
		if i == 0 {
			name := r.Reference
			if name == "" {
				name = r.Model
			}
			t.Rows = append(t.Rows, []string{name, "", meanText(d.Original.Perplexity, 3), "", "", "", "", "", ""})
		}
		bits, size := "", ""
		if len(r.Formats) > 0 {
			f := r.Formats[i]
			bits, size = fmt.Sprintf("%.4g", f.BitsPerElement()), show.BytesText(float64(bytesIn(r.size, f)))
		}
		t.Rows = append(t.Rows, []string{
			r.name(i), bits, meanText(d.Model.Perplexity, 3), meanText(d.KL.Mean, 5), fmt.Sprintf("%.5f", d.KL.At(0.5)),
			fmt.Sprintf("%.4f", d.KL.At(0.99)),
			shareText(d.SameTop), fmt.Sprintf("%.5f", d.DeltaP.RMS()), size,
		})
	}
	if r.result.Comparisons == nil {
		s := r.loss()
		t.Rows = append(t.Rows, []string{r.Model, "", meanText(s.Perplexity, 3), "", "", "", "", "", ""})
	}
	return t
}
