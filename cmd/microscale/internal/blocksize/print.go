package blocksize

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Study is the results of Run, DirectCast and OneOutlier.
type Study struct {
	Results, Cast, Outlier []Result
}

// Print writes the study as tables, one for each distribution, or as a JSON document.
func (s *Study) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, map[string]any{"results": documents(s.Results), "direct_cast": documents(s.Cast),
			"one_outlier": documents(s.Outlier)})
	}
	var b strings.Builder
	for _, d := range distributions {
		var rows []Result
		for _, r := range s.Results {
			if r.Distribution == d.Name {
				rows = append(rows, r)
			}
		}
		section(&b, d.Name+": "+d.Doc, rows)
	}
	section(&b, "Direct and scaled cast: normal values stretched to an amax of 800", s.Cast)
	section(&b, "One outlier of 5000 among normal values times 0.1", s.Outlier)
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

func section(b *strings.Builder, title string, results []Result) {
	if len(results) == 0 {
		return
	}
	t := show.NewTable(show.Left("format"), show.Left("rule"), show.Right("block"), show.Right("SQNR dB"), show.Right("blocks dB"),
		show.Right("max error"), show.Right("saturated"), show.Right("flushed"))
	for _, r := range results {
		block := fmt.Sprint(r.Block)
		if r.Block == 0 {
			block = "-"
		}
		t.AppendRow(table.Row{r.Format, r.Rule, block, show.Decibels(r.SQNR), show.Decibels(r.BlockSQNR), fmt.Sprintf("%.3g", r.MaxError),
			show.Percent(r.Saturated), show.Percent(r.Flushed)})
	}
	fmt.Fprintf(b, "\n%s\n\n%s\n", title, t.Render())
}

type document struct {
	Distribution string      `json:"distribution"`
	Format       string      `json:"format"`
	Rule         string      `json:"rule"`
	Block        int         `json:"block"` // 0: the tensor, the row, or no scale
	SQNR         show.Number `json:"sqnr_db"`
	BlockSQNR    show.Number `json:"mean_block_sqnr_db"`
	MaxError     show.Number `json:"max_error"`
	Bias         show.Number `json:"bias"`
	Saturated    show.Number `json:"saturated"`
	Flushed      show.Number `json:"flushed"`
}

func documents(results []Result) []document {
	list := []document{}
	for _, r := range results {
		list = append(list, document{r.Distribution, r.Format, r.Rule, r.Block, show.Number(r.SQNR), show.Number(r.BlockSQNR),
			show.Number(r.MaxError), show.Number(r.Bias), show.Number(r.Saturated), show.Number(r.Flushed)})
	}
	return list
}

// Chart draws the SQNR of the first distribution by block size, a line for each format and
// rule, as an SVG.
func (s *Study) Chart() ([]byte, error) {
	if len(s.Results) == 0 {
		return nil, fmt.Errorf("chart: no results")
	}
	first := s.Results[0].Distribution
	c := report.Chart{Title: "SQNR by block size: " + first, X: "elements of a block", Y: "SQNR in dB", PowersOfTwo: true}
	index := map[string]int{}
	for _, r := range s.Results {
		if r.Distribution != first || r.Block == 0 {
			continue
		}
		name := strings.TrimSuffix(r.Format+" "+r.Rule, " -")
		i, ok := index[name]
		if !ok {
			i = len(c.Lines)
			index[name] = i
			c.Lines = append(c.Lines, report.Line{Name: name})
		}
		l := &c.Lines[i]
		l.X, l.Y = append(l.X, float64(r.Block)), append(l.Y, r.SQNR)
	}
	return c.SVG()
}
