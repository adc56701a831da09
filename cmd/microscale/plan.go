package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// addDryRun gives cmd --dry-run.
func addDryRun(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("dry-run", false, "print what would be done, from the headers alone; with --each or --json, where every tensor will lie")
}

// dryRunPlan prints a plan that is not carried out, where it could be.
func dryRunPlan(cmd *cobra.Command, plan *convert.Plan, args []string, force, each, asJSON bool) error {
	if err := plan.Admit(args[1], force); err != nil {
		return err
	}
	printLeft(cmd.ErrOrStderr(), plan.Source.Source)
	if asJSON {
		return printJSON(cmd.OutOrStdout(), newPlanDocument(plan, args))
	}
	return printPlan(cmd.OutOrStdout(), plan, args, each)
}

// A planDocument is a plan as JSON.
type planDocument struct {
	Source      string             `json:"source"`
	Destination string             `json:"destination"`
	Format      string             `json:"format,omitempty"`
	Convention  string             `json:"convention,omitempty"`
	Scheme      string             `json:"scheme,omitempty"`
	SourceBytes int64              `json:"source_bytes"`
	Bytes       int64              `json:"bytes"`
	Worker      *int               `json:"worker,omitempty"` // of several: bytes are this one's, all else is of the whole result
	Ignore      []string           `json:"ignore"`
	Notes       []string           `json:"notes,omitempty"`
	Extra       []string           `json:"extra"`
	Skipped     []skippedDocument  `json:"skipped"`
	Files       []plannedDocument  `json:"files"`
	Companions  []fileDocument     `json:"companions"`       // files that are not of weights
	Config      json.RawMessage    `json:"config,omitempty"` // NaN and infinities as zeros
	Index       json.RawMessage    `json:"index,omitempty"`
	Tensors     []decisionDocument `json:"tensors"`
}

// A plannedDocument is a file of weights that is to be written.
type plannedDocument struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes"`
	HeaderBytes int64  `json:"header_bytes"` // before the data
	Worker      *int   `json:"worker,omitempty"`
}

// A fileDocument is a file.
type fileDocument struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// A decisionDocument is what becomes of a weight.
type decisionDocument struct {
	Name     string           `json:"name"`
	Shape    []int64          `json:"shape"`
	Quantize bool             `json:"quantize"`
	Becomes  string           `json:"becomes"`
	Reason   string           `json:"reason,omitempty"` // why it is not quantized
	File     string           `json:"file"`
	Stored   []storedDocument `json:"stored"`
	Bytes    int64            `json:"bytes"`
}

// A storedDocument is a tensor of the result, or the part of it that an expert has.
type storedDocument struct {
	Name   string  `json:"name"`
	Dtype  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // in the file
	Bytes  int64   `json:"bytes"`
}

// newPlanDocument returns a plan as JSON.
func newPlanDocument(plan *convert.Plan, args []string) planDocument {
	stored, _ := plan.SourceBytes()
	doc := planDocument{Source: args[0], Destination: args[1], Format: plan.Format.Name,
		SourceBytes: stored, Bytes: plan.Bytes(), Ignore: plan.Ignore, Notes: plan.Notes,
		Extra: orEmpty(plan.Source.Source.Extra()), Skipped: skippedDocuments(plan.Source.Source),
		Companions: []fileDocument{}, Config: hf.StandardJSON(plan.Config()), Index: plan.Index()}
	if plan.Convention != nil {
		doc.Convention = plan.Convention.Name
		doc.Scheme, _ = plan.Convention.Scheme(plan.Format)
	}
	index, _, parted := plan.Part()
	if parted {
		doc.Worker = &index
	}
	for _, f := range plan.Files {
		file := plannedDocument{Name: f.Name, Bytes: f.Layout.FileSize(), HeaderBytes: int64(len(f.Layout.HeaderBytes()))}
		if parted {
			file.Worker = new(plan.WorkerOf(f.Name))
		}
		doc.Files = append(doc.Files, file)
	}
	for _, c := range plan.Companions() {
		doc.Companions = append(doc.Companions, fileDocument{c.Name, c.Size})
	}
	layouts := layoutsOf(plan)
	for _, d := range plan.Decisions {
		doc.Tensors = append(doc.Tensors, decisionDocument{Name: d.Weight.Name, Shape: orEmpty(d.Weight.Shape), Quantize: d.Action == convert.Quantize, Becomes: plan.FormatName(d),
			Reason: d.Reason, File: d.File, Stored: storedDocuments(plan, d, layouts), Bytes: d.Bytes()})
	}
	return doc
}

func layoutsOf(plan *convert.Plan) map[string]*safetensors.Layout {
	layouts := map[string]*safetensors.Layout{}
	for _, f := range plan.Files {
		layouts[f.Name] = f.Layout
	}
	return layouts
}

// storedDocuments returns the tensors that a weight is stored in.
func storedDocuments(plan *convert.Plan, d convert.Decision, layouts map[string]*safetensors.Layout) []storedDocument {
	stored := []storedDocument{}
	for _, s := range d.Stored {
		offset, _ := layouts[d.File].Offset(s.Name)
		begin, n := d.Extent(s)
		dtype, shape := s.Dtype.String(), s.Shape
		if s.Part == checkpoint.Blocks { // structs of codes and scales, which GGUF has a type for
			dtype, shape = strings.ToUpper(plan.Format.Name), d.Weight.Shape
		}
		stored = append(stored, storedDocument{s.Name, dtype, orEmpty(shape), offset + begin, n})
	}
	return stored
}

// printPlan prints a plan for people: what becomes of the weights, the files, and
// what config.json will say. Where every tensor will lie, it prints where each is
// true.
func printPlan(w io.Writer, plan *convert.Plan, args []string, each bool) error {
	for _, n := range plan.Notes {
		if _, err := fmt.Fprintf(w, "note: %s\n\n", escaped(n)); err != nil {
			return err
		}
	}
	if err := printDecisions(w, plan, each); err != nil {
		return err
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
	stored, _ := plan.SourceBytes()
	what := fmt.Sprintf("%d of %d weights decoded", plan.Count(convert.Decode), len(plan.Decisions))
	if plan.Convention != nil {
		name, _ := plan.Convention.Scheme(plan.Format)
		done := plan.Count(convert.Quantize)
		verb := "in"
		if done == 0 {
			done, verb = plan.Count(convert.Relabel), "relabeled,"
		}
		what = fmt.Sprintf("%d of %d weights %s %s (%s)", done, len(plan.Decisions), verb, plan.Format, schemeText(plan.Convention.Name, name))
	}
	if index, count, ok := plan.Part(); ok {
		what += fmt.Sprintf(", the part of worker %d of %d", index, count)
	}
	_, err := fmt.Fprintf(w, "\n%s → %s: %s, %s → %s; nothing was written\n", printable(args[0]), printable(args[1]), what, bytesText(float64(stored)), bytesText(float64(plan.Bytes())))
	return err
}

// printDecisions prints what becomes of every weight, and why.
func printDecisions(w io.Writer, plan *convert.Plan, each bool) error {
	t := newTable(column{"weight", false}, column{"n", true}, column{"shape", true}, column{"becomes", false}, column{"because", false}, column{"size", true})
	var names []verify.Tensor // grouped as results are
	decisions := map[string]convert.Decision{}
	for _, d := range plan.Decisions {
		rows, cols := d.Weight.Matrix()
		names = append(names, verify.Tensor{Name: d.Weight.Name, Format: plan.FormatName(d), Rows: rows, Cols: cols})
		decisions[d.Weight.Name] = d
	}
	for _, g := range grouped(names, each) {
		var size int64
		for _, m := range g.members {
			size += decisions[m.Name].Bytes()
		}
		first := g.members[0]
		t.AppendRow(table.Row{printable(g.name), len(g.members), fmt.Sprintf("%d×%d", first.Rows, first.Cols), first.Format, decisions[first.Name].Reason, bytesText(float64(size))})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// printPlaces prints every tensor of the result and where it lies.
func printPlaces(w io.Writer, plan *convert.Plan) error {
	t := newTable(column{"file", false}, column{"tensor", false}, column{"dtype", false}, column{"shape", false}, column{"offset", true}, column{"bytes", true})
	layouts := layoutsOf(plan)
	for _, d := range plan.Decisions {
		for _, s := range storedDocuments(plan, d, layouts) {
			t.AppendRow(table.Row{printable(d.File), printable(s.Name), s.Dtype, shapeText(s.Shape), s.Offset, s.Bytes})
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", t.Render())
	return err
}

// shapeText returns a shape as 2×3.
func shapeText(shape []int64) string {
	if len(shape) == 0 {
		return "scalar"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", "×")
}

// printFiles prints the files of the result, and what the index counts.
func printFiles(w io.Writer, plan *convert.Plan) error {
	_, _, parted := plan.Part()
	columns := []column{{"file", false}, {"tensors", true}, {"header", true}, {"size", true}}
	if parted {
		columns = append(columns, column{"worker", true})
	}
	t := newTable(columns...)
	appendRow := func(worker int, row table.Row) {
		if parted {
			row = append(row, worker)
		}
		t.AppendRow(row)
	}
	for _, f := range plan.Files {
		appendRow(plan.WorkerOf(f.Name), table.Row{printable(f.Name), len(f.Layout.Header().Tensors), bytesText(float64(len(f.Layout.HeaderBytes()))), bytesText(float64(f.Layout.FileSize()))})
	}
	for _, c := range plan.Companions() {
		appendRow(0, table.Row{printable(c.Name), "", "", bytesText(float64(c.Size))})
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
	_, err := fmt.Fprintf(w, "\n%s: %s in %s, total_size %s\n", safetensors.IndexName, counted(len(index.WeightMap), "tensor"), counted(len(plan.Files), "file"), index.Metadata["total_size"])
	return err
}

// shownNames is how many names of a list in config.json are printed, unless each is.
const shownNames = 8

// printConfigChanges prints what the result's config.json says that the source's
// does not.
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
		if err := printJSON(&text, value); err != nil {
			return err
		}
		for line := range strings.Lines(fmt.Sprintf("\nconfig.json, %s: %s", printable(name), text.String())) {
			if _, err := fmt.Fprintln(w, escaped(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		_, err = fmt.Fprintf(w, "\nconfig.json: without %s\n", escaped(strings.Join(gone, ", ")))
	}
	return err
}

// shortened returns a JSON value whose long lists have their first elements alone,
// and how many there are more.
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
