package difference

import (
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A document is a report as JSON.
type document struct {
	A         string           `json:"a"`
	B         string           `json:"b"`
	Equal     bool             `json:"equal"` // all values are, but for the last bit by the order of products
	Different int              `json:"different"`
	Weights   int              `json:"weights"`
	Causes    map[string]int   `json:"causes"`
	Tensors   []weightDocument `json:"tensors"`
}

// A weightDocument is the difference of a weight as JSON.
type weightDocument struct {
	Name     string      `json:"name"`
	A        string      `json:"a,omitempty"` // format
	B        string      `json:"b,omitempty"`
	Cause    string      `json:"cause"`
	Elements int64       `json:"elements"`
	Values   *int64      `json:"values"` // that differ; null if it is missing, or shapes differ
	Codes    *int64      `json:"codes"`  // that differ; null if they were not compared, as of other formats
	Scales   *int64      `json:"scales"` // of blocks that differ; null as above
	Blocks   int64       `json:"blocks,omitempty"`
	Global   bool        `json:"global,omitempty"` // the global scales differ
	Rule     int64       `json:"rule_blocks,omitempty"`
	Rounding int64       `json:"rounding_blocks,omitempty"`
	Other    int64       `json:"other_blocks,omitempty"`
	SQNR     show.Number `json:"sqnr_db"` // of B against A; null if equal, or not compared
}

// shownWeights is the number of different weights that are printed without each.
const shownWeights = 20

// Print prints the weights that are not equal, the first of them or, with each, all, and a summary by cause; or a JSON document of all.
func (r *Report) Print(w io.Writer, a, b string, each, asJSON bool) error {
	causes := map[string]int{}
	for _, one := range r.Weights {
		causes[one.Cause.String()]++
	}
	if asJSON {
		doc := document{A: a, B: b, Equal: r.Different() == 0, Different: r.Different(), Weights: len(r.Weights), Causes: causes,
			Tensors: []weightDocument{}}
		for _, one := range r.Weights {
			d := weightDocument{Name: one.Name, A: one.A, B: one.B, Cause: one.Cause.String(), Elements: one.Elements, Blocks: one.Blocks,
				Global: one.Global, Rule: one.rule, Rounding: one.rounding, Other: one.other, SQNR: show.Number(math.NaN())}
			if one.Cause != Alone && one.Cause != Shape {
				d.Values = &one.Values
			}
			if one.Blocks > 0 {
				d.Codes, d.Scales = &one.Codes, &one.Scales
			}
			if one.Result.Elements > 0 {
				d.SQNR = show.Number(one.Result.SQNR)
			}
			doc.Tensors = append(doc.Tensors, d)
		}
		return show.PrintJSON(w, doc)
	}
	t := show.NewTable(show.Left("weight"), show.Left("formats"), show.Left("cause"), show.Right("codes"), show.Right("scales"),
		show.Right("values"), show.Right("SQNR dB"))
	shown, more := 0, 0
	for _, one := range r.Weights {
		if one.Cause == Nothing {
			continue
		}
		if shown == shownWeights && !each {
			more++
			continue
		}
		shown++
		codes, values := share(one.Codes, one.Elements), share(one.Values, one.Elements)
		if one.Blocks == 0 {
			codes = ""
		}
		if one.Cause == Alone || one.Cause == Shape {
			values = ""
		}
		t.AppendRow(table.Row{show.Printable(one.Name), one.formats(), one.cause(), codes, share(one.Scales, one.Blocks), values, one.sqnr()})
	}
	if shown > 0 {
		if _, err := fmt.Fprintf(w, "%s\n", t.Render()); err != nil {
			return err
		}
	}
	if more > 0 {
		fmt.Fprintf(w, "and %d more: --each prints all\n", more)
	}
	if shown > 0 {
		fmt.Fprintln(w)
	}
	text := ""
	for i, name := range causeNames {
		if n := causes[name]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, causeNames[i])
		}
	}
	_, err := fmt.Fprintf(w, "%s and %s: %s: %s\n", show.Printable(a), show.Printable(b), show.Counted(len(r.Weights), "weight"), text)
	return err
}

// formats names the formats of both checkpoints.
func (w *Weight) formats() string {
	switch {
	case w.A == w.B:
		return w.A
	case w.A == "":
		return "only B: " + w.B
	case w.B == "":
		return "only A: " + w.A
	}
	return w.A + " / " + w.B
}

// cause names the cause, with the blocks of each if there are several.
func (w *Weight) cause() string {
	text := w.Cause.String()
	if w.Cause != Rule && w.Cause != Rounding && w.Cause != Values && w.Cause != Global || w.Blocks == 0 {
		return text
	}
	n := 0
	for _, of := range []int64{w.rule, w.rounding, w.other} {
		if of > 0 {
			n++
		}
	}
	if n > 1 {
		text += fmt.Sprintf(" (blocks: %d scale, %d rounding, %d other)", w.rule, w.rounding, w.other)
	}
	return text
}

func (w *Weight) sqnr() string {
	if w.Result.Elements == 0 {
		return ""
	}
	return show.Decibels(w.Result.SQNR)
}

// share returns a part of a number as a percentage.
func share(n, of int64) string {
	if of == 0 {
		return ""
	}
	return show.Percent(float64(n) / float64(of))
}
