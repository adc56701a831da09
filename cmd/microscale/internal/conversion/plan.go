package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// PrintPlan prints the plan of c: what becomes of the weights, the files, and the
// changes to config.json; with each, also the offset of every tensor.
func (c *Conversion) PrintPlan(w io.Writer, each, asJSON bool) error {
	plan := c.Plan
	if asJSON {
		doc := newPlanDocument(plan, c.Source, c.Destination)
		doc.Budget, doc.Repair = c.Budget, c.repair
		return show.PrintList(w, doc, decisionDocuments(plan))
	}
	for _, n := range plan.Notes {
		if _, err := fmt.Fprintf(w, "note: %s\n\n", show.Escaped(n)); err != nil {
			return err
		}
	}
	if c.repair == nil || each { // that lists its changes
		if err := printDecisions(w, plan, each); err != nil {
			return err
		}
	}
	if each {
		if err := printPlaces(w, plan); err != nil {
			return err
		}
	}
	if err := printFiles(w, plan); err != nil {
		return err
	}
	if err := printConfigChanges(w, plan, each); err != nil {
		return err
	}
	if inexact, _ := plan.Inexact(); inexact > 0 {
		fmt.Fprintln(w)
		if err := PrintInexact(w, c.Source, c.Destination, plan, each, false); err != nil {
			return err
		}
	}
	stored, _ := plan.SourceBytes()
	weights := plan.Weights()
	what := fmt.Sprintf("%d of %d weights decoded", plan.Count(convert.Decode), weights)
	switch {
	case c.repair != nil:
		what = c.what
	case plan.Convention == "":
	case len(plan.Shares()) == 0:
		what = unquantizedText(plan)
	default:
		done, verb := plan.Count(convert.Quantize), "in"
		if done == 0 {
			done, verb = plan.Count(convert.Relabel), "relabeled,"
		}
		what = fmt.Sprintf("%d of %d weights %s %s (%s)", done, weights, verb, sharesText(plan), schemeText(plan.Convention, plan.Scheme))
		if method := plan.Method(); method != "" {
			what += ", method " + method
		}
		if len(plan.Casts) > 0 {
			what = c.what
		}
	}
	if index, count, ok := plan.Part(); ok {
		what += fmt.Sprintf(", part of worker %d of %d", index, count)
	}
	_, err := fmt.Fprintf(w, "\n%s → %s: %s, %s → %s; nothing was written\n", show.Printable(c.Source), show.Printable(c.Destination),
		what, show.BytesText(float64(stored)), show.BytesText(float64(plan.Bytes())))
	return errors.Join(err, c.printBudget(w))
}

// printBudget prints the choice of a budget, if the plan comes from one.
func (c *Conversion) printBudget(w io.Writer) error {
	if c.Budget == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s\n", c.Budget)
	return err
}

// printDecisions prints the format that each weight becomes, and why.
func printDecisions(w io.Writer, plan *convert.Plan, each bool) error {
	t := show.NewTable(show.Left("weight"), show.Right("n"), show.Right("shape"), show.Left("becomes"), show.Left("reason"),
		show.Right("size"))
	var names []verify.Tensor // grouped as results are
	decisions := map[string]convert.Decision{}
	for d := range plan.Decisions() {
		rows, cols := (&checkpoint.Weight{Shape: d.Shape}).Matrix()
		names = append(names, verify.Tensor{Name: d.Name, Format: d.Format, Rows: rows, Cols: cols})
		decisions[d.Name] = d
	}
	for _, g := range grouped(names, each) {
		var size int64
		for _, m := range g.members {
			size += decisions[m.Name].Bytes
		}
		first := g.members[0]
		t.AppendRow(table.Row{show.Printable(g.name), len(g.members), fmt.Sprintf("%d×%d", first.Rows, first.Cols), first.Format,
			decisions[first.Name].Reason, show.BytesText(float64(size))})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// printPlaces prints the file and offset of every tensor of the result.
func printPlaces(w io.Writer, plan *convert.Plan) error {
	t := show.NewTable(show.Left("file"), show.Left("tensor"), show.Left("dtype"), show.Left("shape"), show.Right("offset"),
		show.Right("bytes"))
	for d := range plan.Decisions() {
		for _, s := range storedDocuments(plan, d) {
			t.AppendRow(table.Row{show.Printable(d.File), show.Printable(s.Name), s.Dtype, ShapeText(s.Shape), s.Offset, s.Bytes})
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", t.Render())
	return err
}

// ShapeText returns a shape as 2×3.
func ShapeText(shape []int64) string {
	if len(shape) == 0 {
		return "scalar"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", "×")
}

// printFiles prints the files of the result and the totals of the index.
func printFiles(w io.Writer, plan *convert.Plan) error {
	_, _, parted := plan.Part()
	columns := []show.Column{show.Left("file"), show.Right("tensors"), show.Right("header"), show.Right("size")}
	if parted {
		columns = append(columns, show.Right("worker"))
	}
	t := show.NewTable(columns...)
	appendRow := func(worker int, row table.Row) {
		if parted {
			row = append(row, worker)
		}
		t.AppendRow(row)
	}
	for _, f := range plan.Files() {
		appendRow(f.Worker, table.Row{show.Printable(f.Name), f.Tensors, show.BytesText(float64(f.HeaderSize)), show.BytesText(float64(f.Size))})
	}
	for _, c := range plan.Companions() {
		appendRow(0, table.Row{show.Printable(c.Name), "", "", show.BytesText(float64(c.Size))})
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", t.Render()); err != nil || plan.Index() == nil {
		return err
	}
	var index struct {
		Metadata  map[string]json.Number `json:"metadata"`
		WeightMap map[string]string      `json:"weight_map"`
	}
	if err := json.Unmarshal(plan.Index(), &index); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s: %s in %s, total_size %s\n", safetensors.IndexName, show.Counted(len(index.WeightMap), "tensor"),
		show.Counted(len(plan.Files()), "file"), index.Metadata["total_size"])
	return err
}

// shownNames is the number of list elements of config.json that are printed without
// --each.
const shownNames = 8

// printConfigChanges prints the difference of config.json between source and result.
func printConfigChanges(w io.Writer, plan *convert.Plan, each bool) error {
	set, gone, err := plan.ConfigChanges()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(set[name]))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if !each {
			value = shortened(value)
		}
		var text strings.Builder
		if err := show.PrintJSON(&text, value); err != nil {
			return err
		}
		for line := range strings.Lines(fmt.Sprintf("\nconfig.json, %s: %s", show.Printable(name), text.String())) {
			if _, err := fmt.Fprintln(w, show.Escaped(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		_, err = fmt.Fprintf(w, "\nconfig.json: removed %s\n", show.Escaped(strings.Join(gone, ", ")))
	}
	return err
}

// shortened truncates the long lists of a JSON value, and appends the number of
// elements omitted.
func shortened(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			v[key] = shortened(member)
		}
	case []any:
		for i, element := range v {
			v[i] = shortened(element)
		}
		if more := len(v) - shownNames; more > 1 {
			return append(v[:shownNames:shownNames], fmt.Sprintf("… and %d more", more))
		}
	}
	return value
}
