package conversion

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hf"
)

// An InspectDocument is an inspection as JSON.
type InspectDocument struct {
	Source     string            `json:"source"`
	Convention *string           `json:"convention"` // null: not quantized
	Scheme     string            `json:"scheme"`     // as clients name it; "" if unknown
	Search     string            `json:"scale_search,omitempty"`
	Method     string            `json:"method,omitempty"`  // that chose scales and codes by statistics
	Adapter    bool              `json:"adapter,omitempty"` // weights to merge into a base model
	Parameters int64             `json:"parameters"`
	Bytes      int64             `json:"bytes"`
	Quantized  int               `json:"quantized"`
	Files      []fileDocument    `json:"files"`
	Weights    []weightDocument  `json:"tensors"`
	Ignore     []string          `json:"ignore"`
	Extra      []string          `json:"extra"`   // safetensors files that are not part of the checkpoint
	Skipped    []skippedDocument `json:"skipped"` // other files that a conversion does not copy
	Problems   []problemDocument `json:"problems"`
	Notes      []string          `json:"notes"` // what may be a fault
}

type weightDocument struct {
	Name   string  `json:"name"`
	Format string  `json:"format"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"` // including scales
	File   string  `json:"file"`
}

// skippedDocument is a file that a conversion does not copy, as JSON.
type skippedDocument struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Inspect returns what the headers of m contain. arg is the SRC that was opened.
func Inspect(arg string, m *checkpoint.Model) InspectDocument {
	doc := InspectDocument{
		Source: arg, Quantized: m.Quantized() + len(m.Decoded), Ignore: show.OrEmpty(m.Ignore), Extra: show.OrEmpty(m.Source.Extra()),
		Adapter: m.Adapter() != "", Skipped: skippedDocuments(m.Source), Problems: problemDocuments(problemsOf(m)), Notes: show.OrEmpty(m.Notes),
	}
	if m.Convention != nil {
		doc.Convention, doc.Scheme, doc.Search, doc.Method = &m.Convention.Name, m.Scheme, m.ScaleSearch(), m.Method()
	}
	if doc.Convention == nil && len(m.Decoded) > 0 {
		doc.Convention = &checkpoint.GGUF().Name
	}
	for _, shard := range m.Source.Shards() {
		doc.Files = append(doc.Files, fileDocument{shard.Name, m.Bytes(shard)})
	}
	if file := m.Source.GGUF; file != nil && len(file.Parts()) > 1 {
		doc.Files = nil
		for _, part := range file.Parts() {
			doc.Files = append(doc.Files, fileDocument{filepath.Base(part.Name()), part.Size()})
		}
	}
	for _, file := range doc.Files {
		doc.Bytes += file.Bytes
	}
	doc.Weights = make([]weightDocument, 0, len(m.Weights))
	for _, w := range m.Weights {
		rows, cols := w.Matrix()
		doc.Parameters += int64(rows) * int64(cols)
		codes, _ := w.Part(checkpoint.Codes)
		doc.Weights = append(doc.Weights, weightDocument{w.Name, w.FormatName(), show.OrEmpty(w.Shape), w.StoredBytes(), codes.Shard.Name})
	}
	return doc
}

// skippedDocuments returns the files that a conversion of c does not copy.
func skippedDocuments(c *hf.Checkpoint) []skippedDocument {
	documents := []skippedDocument{}
	for _, s := range c.Skipped() {
		documents = append(documents, skippedDocument{s.Name, s.Reason})
	}
	return documents
}

// paddedText returns a note if a weight stores padding, and so needs more bits per
// value than its format.
func paddedText(w *checkpoint.Weight) string {
	codes, _ := w.Part(checkpoint.Codes)
	rows, cols := w.Matrix()
	if w.Quantized() && 8*codes.Bytes() > int64(rows)*int64(cols)*int64(w.Format.Element.StoredBits()) {
		return "padded"
	}
	return ""
}

// leftText returns a line for each file in the directory of a checkpoint that a
// conversion does not copy.
func leftText(c *hf.Checkpoint) string {
	var b strings.Builder
	for _, name := range c.Extra() {
		fmt.Fprintf(&b, "not copied: %s (not part of the checkpoint)\n", show.Printable(name))
	}
	for _, s := range c.Skipped() {
		fmt.Fprintf(&b, "not copied: %s (%s)\n", show.Printable(s.Name), show.Escaped(s.Reason))
	}
	return b.String()
}

// PrintLeft prints the files that a conversion does not copy.
func PrintLeft(stderr io.Writer, c *hf.Checkpoint) { fmt.Fprint(stderr, leftText(c)) }

// PrintInspection prints the weights, formats and problems of m, which was opened as
// arg.
func PrintInspection(w io.Writer, arg string, m *checkpoint.Model, each, asJSON bool) error {
	doc := Inspect(arg, m)
	if asJSON {
		return show.PrintJSON(w, doc)
	}
	t := show.NewTable(show.Left("weight"), show.Right("n"), show.Right("shape"), show.Left("format"), show.Right("size"),
		show.Right("bits/value"), show.Left(""))
	type total struct {
		groupKey
		n     int
		bytes int64
		note  string // of the first
	}
	var totals []*total // sums rather than members: a checkpoint may have a million weights
	index := map[groupKey]*total{}
	for i, weight := range m.Weights {
		rows, cols := weight.Matrix()
		key := keyOf(weight.Name, doc.Weights[i].Format, rows, cols, each)
		g := index[key]
		if g == nil {
			g = &total{groupKey: key, note: paddedText(weight)}
			totals, index[key] = append(totals, g), g
		}
		g.n, g.bytes = g.n+1, g.bytes+doc.Weights[i].Bytes
	}
	for _, g := range totals {
		values := max(1, g.n*g.rows*g.cols)
		t.AppendRow(table.Row{show.Printable(g.name), g.n, fmt.Sprintf("%d×%d", g.rows, g.cols), g.format, show.BytesText(float64(g.bytes)),
			fmt.Sprintf("%.4g", 8*float64(g.bytes)/float64(values)), g.note})
	}
	convention := "not quantized"
	if doc.Adapter {
		convention = "an adapter, not a model: merge it into its base model"
	}
	if doc.Convention != nil {
		convention = fmt.Sprintf("%d of %s quantized (%s)", doc.Quantized, show.Counted(len(doc.Weights), "weight"),
			schemeText(*doc.Convention, doc.Scheme))
	}
	switch {
	case doc.Method != "":
		convention += ", method " + show.Printable(doc.Method)
	case doc.Search != "":
		convention += ", scale search " + show.Printable(doc.Search)
	}
	if _, err := fmt.Fprintf(w, "%s\n\n%s: %s, %s in %s, %s\n", t.Render(), show.Printable(strings.TrimSuffix(doc.Source, ":")),
		show.ParametersText(float64(doc.Parameters)), show.BytesText(float64(doc.Bytes)), show.Counted(len(doc.Files), "file"),
		convention); err != nil {
		return err
	}
	if _, err := io.WriteString(w, leftText(m.Source)); err != nil {
		return err
	}
	if err := printProblems(w, problemsOf(m)); err != nil {
		return err
	}
	return printNotes(w, doc.Notes)
}
