package conversion

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
)

// Casted describes the cast of src to another block format.
func Casted(src, dst string, plan *convert.Plan) *Conversion {
	c := &Conversion{Source: src, Destination: dst, Plan: plan, format: formatsOf(plan), convention: plan.Convention,
		scheme: plan.Scheme, count: len(plan.Casts), relabel: true}
	var from []string
	for _, one := range plan.Casts {
		if !slices.Contains(from, one.From) {
			from = append(from, one.From)
		}
	}
	to := c.format
	if len(plan.Casts) > 0 {
		to = plan.Casts[0].To
	}
	inexact, blocks := plan.Inexact()
	how := "every value the same"
	if inexact > 0 {
		how = fmt.Sprintf("%d of %s have no exact cast and are rounded", inexact, show.Counted(int(blocks), "block"))
	}
	c.what = fmt.Sprintf("%s of %s cast to %s (%s), %s", show.Counted(c.count, "weight"), strings.Join(from, ", "), to,
		schemeText(c.convention, c.scheme), how)
	return c
}

// A castDocument is the cast of a weight as JSON.
type castDocument struct {
	Weight    string           `json:"weight"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	Condition string           `json:"condition"` // when a block is exact
	Blocks    int64            `json:"blocks"`
	Inexact   int64            `json:"inexact"`
	Reasons   map[string]int64 `json:"reasons,omitempty"`
	First     []blockDocument  `json:"first_inexact,omitempty"`
}

// A blockDocument is a block without an exact cast.
type blockDocument struct {
	Row   int    `json:"row"`
	Block int    `json:"block"`
	Why   string `json:"why"`
}

// castDocuments returns the casts of a plan; nil if it casts nothing.
func castDocuments(plan *convert.Plan) (docs []castDocument) {
	for _, c := range plan.Casts {
		doc := castDocument{Weight: c.Weight, From: c.From, To: c.To, Condition: c.Condition, Blocks: c.Blocks, Inexact: c.Inexact,
			Reasons: c.Reasons}
		for _, b := range c.First {
			doc.First = append(doc.First, blockDocument{b.Row, b.Col, b.Why})
		}
		docs = append(docs, doc)
	}
	return docs
}

// A castsDocument is a cast that wrote nothing, as JSON.
type castsDocument struct {
	Source      string         `json:"source"`
	Destination string         `json:"destination"`
	Blocks      int64          `json:"blocks"`
	Inexact     int64          `json:"inexact"`
	Casts       []castDocument `json:"casts"`
}

// PrintInexact prints the blocks of a plan without an exact cast: the first of each weight, or, with each, as many as the
// plan lists. It prints nothing if there are none.
func PrintInexact(w io.Writer, src, dst string, plan *convert.Plan, each, asJSON bool) error {
	inexact, blocks := plan.Inexact()
	if asJSON {
		return show.PrintJSON(w, castsDocument{src, dst, blocks, inexact, castDocuments(plan)})
	}
	if inexact == 0 {
		return nil
	}
	t := show.NewTable(show.Left("weight"), show.Right("blocks"), show.Right("inexact"), show.Right("row"), show.Right("block"),
		show.Left("why"))
	for _, c := range plan.Casts {
		for i, b := range c.First {
			switch {
			case i > 0 && !each:
			case i > 0:
				t.AppendRow(table.Row{"", "", "", b.Row, b.Col, b.Why})
			case each || len(c.Reasons) == 1:
				t.AppendRow(table.Row{show.Printable(c.Weight), c.Blocks, c.Inexact, b.Row, b.Col, b.Why})
			default:
				t.AppendRow(table.Row{show.Printable(c.Weight), c.Blocks, c.Inexact, b.Row, b.Col, reasonsText(c.Reasons)})
			}
		}
	}
	_, err := fmt.Fprintf(w, "%s\n\n", t.Render())
	return err
}

// reasonsText lists reasons with the number of their blocks.
func reasonsText(reasons map[string]int64) string {
	var texts []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, fmt.Sprintf("%s (%d)", why, reasons[why]))
	}
	return strings.Join(texts, ", ")
}
