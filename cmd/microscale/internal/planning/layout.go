package planning

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/layouts"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// PrintLayouts lists the layouts with their other names.
func PrintLayouts(w io.Writer, asJSON bool) error {
	if asJSON {
		var list []layoutDocument
		for _, l := range layouts.Layouts() {
			list = append(list, layoutDocument{l.Name, show.OrEmpty(l.Aliases), l.Doc, l.Scales()})
		}
		return show.PrintJSON(w, map[string]any{"layouts": list})
	}
	var scales, codes []show.Step
	for _, l := range layouts.Layouts() {
		text := l.Doc
		if len(l.Aliases) > 0 {
			text += " (also " + strings.Join(l.Aliases, ", ") + ")"
		}
		if l.Scales() {
			scales = append(scales, show.Step{l.Name, text})
		} else {
			codes = append(codes, show.Step{l.Name, text})
		}
	}
	var b strings.Builder
	b.WriteString("Scales\n\n")
	writeColumns(&b, show.TerminalWidth(w), 20, scales)
	section(&b, show.TerminalWidth(w), "Codes and scales", 20, codes)
	_, err := io.WriteString(w, b.String())
	return err
}

type layoutDocument struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"`
	Doc     string   `json:"doc"`
	Scales  bool     `json:"scales_only"`
}

type candidateDocument struct {
	Layout    string      `json:"layout"`
	Possible  bool        `json:"possible"`
	Why       string      `json:"why,omitempty"`
	Structure show.Number `json:"explained"` // share of the variance; null for codes
}

func foundDocument(candidates []layouts.Candidate, certain bool) any {
	var list []candidateDocument
	for _, c := range candidates {
		d := candidateDocument{Layout: c.Layout.Name, Possible: c.Err == nil, Structure: show.Number(c.Structure)}
		if c.Err != nil {
			d.Why = c.Err.Error()
		}
		list = append(list, d)
	}
	return map[string]any{"certain": certain, "candidates": list}
}

// ReadBuffer reads all of r. It returns an error for more bytes than any layout of b has, and for a
// format or a shape that has none.
func ReadBuffer(r io.Reader, b layouts.Buffer) ([]byte, error) {
	limit := 0
	var problem error // of the first layout
	for _, l := range layouts.Layouts() {
		n, err := b.Size(l)
		if limit = max(limit, n); problem == nil {
			problem = err
		}
	}
	if limit == 0 {
		return nil, problem
	}
	src, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(src) > limit {
		err = fmt.Errorf("standard input: got more than %d bytes, the largest layout of %d×%d %s: check --rows and --cols", limit, b.Rows, b.Cols,
			b.Format)
	}
	return src, err
}

// PrintFound prints which layouts the buffer may be in. It returns an error if there is none, and
// after the list if a scale of the likeliest is NaN.
func PrintFound(w io.Writer, b layouts.Buffer, src []byte, asJSON bool) error {
	candidates, certain := b.Find(src)
	if asJSON {
		return show.PrintJSON(w, foundDocument(candidates, certain))
	}
	verdict := "uncertain: several layouts are possible"
	switch {
	case candidates[0].Err != nil:
		return fmt.Errorf("standard input: %d bytes are in no layout of %d×%d %s: check --rows, --cols and --format", len(src), b.Rows, b.Cols,
			b.Format)
	case certain:
		verdict = "found: " + candidates[0].Layout.Name
	}
	t := show.NewTable(show.Left("layout"), show.Right("explained"))
	for _, c := range candidates {
		if c.Err == nil {
			t.AppendRow(table.Row{c.Layout.Name, show.Percent(c.Structure)})
		}
	}
	if _, err := fmt.Fprintf(w, "%s\n\n%s\n", verdict, t.Render()); err != nil {
		return err
	}
	return b.Check(src, candidates[0].Layout)
}
