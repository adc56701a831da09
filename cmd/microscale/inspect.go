package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
)

func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect SRC",
		Short: "what is in a checkpoint",
		Long: `Reads the headers of a checkpoint and prints its weights, their formats and
sizes, how it is quantized, and what is wrong with it. A file that is not a sound
safetensors file is an error; what one of the --client programs would refuse is
listed with the problems.

` + sourceHelp,
		Example: `  microscale inspect sample:
  microscale inspect model.safetensors --each`,
		Args: func(_ *cobra.Command, args []string) error {
			return named(args, "SRC")
		},
	}
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	clients := addClients(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		model, source, err := openModel(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		for _, c := range *clients {
			model.Problems = append(model.Problems, c.Refuses(model)...)
		}
		doc := inspection(args[0], model)
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), doc)
		}
		return printInspection(cmd.OutOrStdout(), model, doc, *each)
	}
	return cmd
}

type inspectDocument struct {
	Source     string            `json:"source"`
	Convention *string           `json:"convention"` // null: not quantized
	Scheme     string            `json:"scheme"`     // as its clients call it; "" where it is not said
	Search     string            `json:"scale_search,omitempty"`
	Parameters int64             `json:"parameters"`
	Bytes      int64             `json:"bytes"`
	Quantized  int               `json:"quantized"`
	Files      []fileDocument    `json:"files"`
	Weights    []weightDocument  `json:"tensors"`
	Ignore     []string          `json:"ignore"`
	Extra      []string          `json:"extra"`   // safetensors files that are not part of it
	Skipped    []skippedDocument `json:"skipped"` // other files that a conversion does not carry over
	Problems   []problemDocument `json:"problems"`
}

type weightDocument struct {
	Name   string  `json:"name"`
	Format string  `json:"format"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"` // scales included
	File   string  `json:"file"`
}

type skippedDocument struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

func inspection(arg string, m *checkpoint.Model) inspectDocument {
	doc := inspectDocument{
		Source: arg, Quantized: m.Quantized(), Ignore: orEmpty(m.Ignore), Extra: orEmpty(m.Source.Extra()),
		Skipped: skippedDocuments(m.Source), Problems: problemDocuments(m.Problems),
	}
	if m.Convention != nil {
		doc.Convention, doc.Scheme, doc.Search = &m.Convention.Name, m.Scheme, m.ScaleSearch()
	}
	for _, shard := range m.Source.Shards() {
		doc.Files = append(doc.Files, fileDocument{shard.Name, shard.File.Size()})
		doc.Bytes += shard.File.Size()
	}
	doc.Weights = make([]weightDocument, 0, len(m.Weights))
	for _, w := range m.Weights {
		rows, cols := w.Matrix()
		doc.Parameters += int64(rows) * int64(cols)
		codes, _ := w.Part(checkpoint.Codes)
		doc.Weights = append(doc.Weights, weightDocument{w.Name, w.FormatName(), orEmpty(w.Shape), w.StoredBytes(), codes.Shard.Name})
	}
	return doc
}

func skippedDocuments(c *hf.Checkpoint) []skippedDocument {
	documents := []skippedDocument{}
	for _, s := range c.Skipped() {
		documents = append(documents, skippedDocument{s.Name, s.Reason})
	}
	return documents
}

// paddedText says that a weight is stored with more codes than it has values,
// which is why it takes more bits a value than its format does.
func paddedText(w *checkpoint.Weight) string {
	codes, _ := w.Part(checkpoint.Codes)
	rows, cols := w.Matrix()
	if w.Quantized() && 8*codes.Bytes() > int64(rows)*int64(cols)*int64(w.Format.Element.StoredBits()) {
		return "padded"
	}
	return ""
}

// leftText has a line for everything in a checkpoint's directory that a
// conversion does not carry over.
func leftText(c *hf.Checkpoint) string {
	var b strings.Builder
	for _, name := range c.Extra() {
		fmt.Fprintf(&b, "not carried over: %s (not part of the checkpoint)\n", printable(name))
	}
	for _, s := range c.Skipped() {
		fmt.Fprintf(&b, "not carried over: %s (%s)\n", printable(s.Name), escaped(s.Reason))
	}
	return b.String()
}

// printLeft tells on standard error what a conversion does not carry over.
func printLeft(stderr io.Writer, c *hf.Checkpoint) { fmt.Fprint(stderr, leftText(c)) }

func printInspection(w io.Writer, m *checkpoint.Model, doc inspectDocument, each bool) error {
	t := newTable(column{"weight", false}, column{"n", true}, column{"shape", true}, column{"format", false}, column{"size", true}, column{"bits/value", true}, column{"", false})
	type total struct {
		groupKey
		n     int
		bytes int64
		note  string // of the first
	}
	var totals []*total // a checkpoint may have a million weights, so sums are kept and not members
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
		t.AppendRow(table.Row{printable(g.name), g.n, fmt.Sprintf("%d×%d", g.rows, g.cols), g.format, bytesText(float64(g.bytes)), fmt.Sprintf("%.4g", 8*float64(g.bytes)/float64(values)), g.note})
	}
	convention := "not quantized"
	if doc.Convention != nil {
		convention = fmt.Sprintf("%d of %s quantized (%s)", doc.Quantized, counted(len(doc.Weights), "weight"), schemeText(*doc.Convention, doc.Scheme))
	}
	if doc.Search != "" {
		convention += ", scales by " + printable(doc.Search)
	}
	if _, err := fmt.Fprintf(w, "%s\n\n%s: %s, %s in %s, %s\n", t.Render(), printable(strings.TrimSuffix(doc.Source, ":")),
		parametersText(float64(doc.Parameters)), bytesText(float64(doc.Bytes)), counted(len(doc.Files), "file"), convention); err != nil {
		return err
	}
	if _, err := io.WriteString(w, leftText(m.Source)); err != nil {
		return err
	}
	return printProblems(w, m.Problems)
}
