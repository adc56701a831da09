package identify

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A document is the result as JSON.
type document struct {
	File    string           `json:"file"`
	Source  string           `json:"source,omitempty"`
	Marks   []string         `json:"marks"`
	Weights []weightDocument `json:"weights"`
}

type weightDocument struct {
	Name       string              `json:"name"`
	Format     string              `json:"format"`
	Blocks     int64               `json:"blocks"` // that were read
	Known      bool                `json:"known"`
	Verdict    string              `json:"verdict"`
	Candidates []candidateDocument `json:"candidates"`
}

type candidateDocument struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Scales  int64  `json:"other_scales"` // blocks; without the source, those that exclude it
	Codes   int64  `json:"other_codes"`  // blocks with the same scale
	Global  bool   `json:"other_global,omitempty"`

	Rule     string      `json:"rule,omitempty"`
	Marks    []string    `json:"marks,omitempty"`           // that it would leave, or would not
	Unlikely show.Number `json:"less_likely_log,omitempty"` // logarithm of how many times less likely the codes are than under the best
}

// Print prints marks, and the weights by format and verdict with the candidates of the first, or with each every weight; or a JSON
// document.
func Print(w io.Writer, file, source string, marks []string, weights []Weight, each, asJSON bool) error {
	if asJSON {
		doc := document{File: file, Source: source, Marks: show.OrEmpty(marks), Weights: []weightDocument{}}
		for _, one := range weights {
			d := weightDocument{Name: one.Name, Format: one.Format, Blocks: one.Blocks, Known: one.Known, Verdict: one.Verdict,
				Candidates: []candidateDocument{}}
			for _, c := range one.Candidates {
				d.Candidates = append(d.Candidates, candidateDocument{c.Name, c.Version, c.Scales, c.Codes, c.Global, c.Rule, c.Marks,
					show.Number(c.Unlikely)})
			}
			doc.Weights = append(doc.Weights, d)
		}
		return show.PrintJSON(w, doc)
	}
	for _, mark := range marks {
		if _, err := fmt.Fprintf(w, "%s\n", show.Printable(mark)); err != nil {
			return err
		}
	}
	if len(marks) > 0 {
		fmt.Fprintln(w)
	}
	t := show.NewTable(show.Left("weights"), show.Right("n"), show.Left("format"), show.Left("written by"))
	type group struct{ format, verdict string }
	found, order := map[group][]Weight{}, []group{}
	for _, one := range weights {
		g := group{one.Format, one.Verdict}
		if each {
			g.verdict += "\x00" + one.Name
		}
		if found[g] == nil {
			order = append(order, g)
		}
		found[g] = append(found[g], one)
	}
	for _, g := range order {
		first := found[g][0]
		t.AppendRow(table.Row{show.Printable(first.Name), len(found[g]), first.Format, first.Verdict})
	}
	if _, err := fmt.Fprintf(w, "%s\n", t.Render()); err != nil {
		return err
	}
	for _, g := range order {
		if err := found[g][0].printCandidates(w); err != nil {
			return err
		}
	}
	return nil
}

// printCandidates prints the evidence of a weight.
func (one *Weight) printCandidates(w io.Writer) error {
	if len(one.Candidates) == 0 {
		return nil
	}
	t := show.NewTable(show.Left("candidate"), show.Right("other scales"), show.Right("other codes"), show.Left("global"))
	if one.Candidates[0].Rule != "" {
		t = show.NewTable(show.Left("candidate"), show.Left("rule of scales"), show.Right("excluded by"), show.Right("less likely by"),
			show.Left("other marks"))
	}
	for _, c := range one.Candidates {
		switch {
		case c.Rule != "":
			t.AppendRow(table.Row{c.title(), c.Rule, c.Scales, times(c.Unlikely), strings.Join(c.Marks, ", ")})
		case c.Global:
			t.AppendRow(table.Row{c.Name, c.Scales, c.Codes, "differs"})
		default:
			t.AppendRow(table.Row{c.Name, c.Scales, c.Codes, ""})
		}
	}
	_, err := fmt.Fprintf(w, "\n%s: %s read; those that contradict\n%s\n", show.Printable(one.Name), show.Counted(int(one.Blocks), "block"),
		t.Render())
	return err
}

// times prints the factor of a logarithm; nothing for 1.
func times(log float64) string {
	switch {
	case log == 0:
		return ""
	case log > math.Log(1e9):
		return "10⁹ and more"
	}
	return fmt.Sprintf("%.1f", math.Exp(log))
}
