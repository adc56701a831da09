package numbers

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/mma"
)

// A stepDocument is a step of a dot product as JSON.
type stepDocument struct {
	Title    string         `json:"title"`
	Terms    []termDocument `json:"terms"`
	Exponent *int           `json:"exponent"` // null: the terms are not aligned
	Unit     *int           `json:"unit"`     // exponent of the unit that terms are truncated to
	Cut      string         `json:"cut"`
	Sum      *show.Number   `json:"sum"`      // of the truncated terms; null: the terms are not aligned
	Rounding string         `json:"rounding"` // empty: the result is the sum
	Result   show.Number    `json:"result"`
}

type termDocument struct {
	Name     string      `json:"name"`
	Value    show.Number `json:"value"`
	Exponent *int        `json:"exponent"` // null: the term is not aligned
	Kept     show.Number `json:"kept"`
}

// document returns the JSON document of a dot product.
func (d *DotCase) document(u *mma.Unit, code uint64, steps []*mma.Step) any {
	documents := make([]stepDocument, len(steps))
	for i, s := range steps {
		step := stepDocument{Title: s.Title, Cut: s.Cut, Rounding: s.Rounding, Result: show.Number(s.Value)}
		aligned := s.Cut != ""
		if aligned {
			sum := show.Number(s.Sum)
			step.Exponent, step.Unit, step.Sum = &s.Exponent, &s.Unit, &sum
		}
		for _, t := range s.Terms {
			term := termDocument{Name: t.Name, Value: show.Number(t.Value), Kept: show.Number(t.Kept)}
			if aligned {
				term.Exponent = &t.Exponent
			}
			step.Terms = append(step.Terms, term)
		}
		documents[i] = step
	}
	return map[string]any{
		"model": u.Model.Name, "rule": u.Rule(), "rounded": show.OrEmpty(d.rounded), "steps": documents,
		"result": show.Number(u.Out.Value(code)), "code": fmt.Sprintf("0x%0*x", 2*u.Out.Bytes, code),
	}
}

// Explain prints every step of the dot product, or a JSON document.
func (d *DotCase) Explain(w io.Writer, u *mma.Unit, asJSON bool) error {
	code, steps := u.Explain(d.a, d.b, d.c, d.scaleA, d.scaleB)
	if asJSON {
		return show.PrintJSON(w, d.document(u, code, steps))
	}
	var b strings.Builder
	width := show.TerminalWidth(w)
	about := []show.Step{{"model", u.Model.Name + ": " + u.Model.Device}, {"rule", u.Rule()}}
	if len(d.rounded) > 0 {
		about = append(about, show.Step{"rounded", strings.Join(d.rounded, "; ")})
	}
	show.WriteSteps(&b, width, about)
	for _, s := range steps {
		fmt.Fprintf(&b, "\n%s\n\n%s\n\n", s.Title, termTable(s))
		var lines []show.Step
		if s.Cut != "" {
			lines = append(lines, show.Step{"cut", fmt.Sprintf("%s to multiples of %s, E = %d", s.Cut, powerOfTwo(s.Unit), s.Exponent)},
				show.Step{"sum", exactText(s.Sum)})
		}
		if s.Rounding != "" {
			lines = append(lines, show.Step{"result", fmt.Sprintf("%s, %s: %s", exactText(s.Value), fmt.Sprintf("0x%0*x", 2*u.Out.Bytes, s.Code),
				s.Rounding)})
		}
		show.WriteSteps(&b, width, lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// termTable returns the terms of a step as a table. Consecutive equal terms share a row.
func termTable(s *mma.Step) string {
	columns := []show.Column{show.Left("term"), show.Right("value"), show.Right("exponent"), show.Right("kept"), show.Right("cut off")}
	if s.Cut == "" {
		columns = columns[:2]
	}
	t := show.NewTable(columns...)
	for i := 0; i < len(s.Terms); {
		first := s.Terms[i]
		last := i
		for last+1 < len(s.Terms) && sameTerm(first, s.Terms[last+1]) && s.Terms[last+1].Name[0] == first.Name[0] {
			last++
		}
		name := first.Name
		if last > i {
			name += " … " + s.Terms[last].Name
		}
		row := table.Row{name, exactText(first.Value)}
		if s.Cut != "" {
			row = append(row, first.Exponent, exactText(first.Kept), exactText(first.Value-first.Kept))
		}
		t.AppendRow(row)
		i = last + 1
	}
	return t.Render()
}

func sameTerm(a, b mma.Term) bool {
	same := a.Value == b.Value && a.Kept == b.Kept || a.Value != a.Value && b.Value != b.Value // NaN
	return same && a.Exponent == b.Exponent
}

// exactText returns the exact value: decimal if that is short, otherwise hexadecimal
// with a binary exponent.
func exactText(v float64) string {
	const few = 12
	if text := strconv.FormatFloat(v, 'g', -1, 64); len(text) <= few {
		return text
	}
	return strconv.FormatFloat(v, 'x', -1, 64)
}
