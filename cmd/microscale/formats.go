package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

func formatsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "formats",
		Short: "list the formats, and which client reads which",
		Long: `Print the block formats and the scalar formats of their elements and scales, with
their limits. With --clients, print as what each format is stored for each client.
Names are matched without regard to case; other projects' names are accepted.`,
		Example: `  microscale formats
  microscale formats --clients
  microscale formats --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	asMarkdown := cmd.Flags().Bool("markdown", false, "print Markdown tables")
	byClient := cmd.Flags().Bool("clients", false, "print the convention and scheme of each format for each client")
	exclusive(cmd, "json", "markdown")
	exclusive(cmd, "json", "clients")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		blocks, scalars := blockTable(), scalarTable()
		switch {
		case *asJSON:
			return printJSON(out, formatsDocument())
		case *byClient && *asMarkdown:
			_, err := fmt.Fprintln(out, clientTable().RenderMarkdown())
			return err
		case *byClient:
			_, err := fmt.Fprintln(out, clientTable().Render())
			return err
		case *asMarkdown:
			_, err := fmt.Fprintf(out, "%s\n\n%s\n", blocks.RenderMarkdown(), scalars.RenderMarkdown())
			return err
		}
		_, err := fmt.Fprintf(out, "Block formats\n\n%s\n\nScalar formats\n\n%s\n\nOther names\n\n", blocks.Render(), scalars.Render())
		if err != nil {
			return err
		}
		return printAliases(out)
	}
	return cmd
}

func blockTable() table.Writer {
	t := newTable(column{"name", false}, column{"element", false}, column{"scale", false}, column{"block", false}, column{"global scale", false}, column{"bits/element", true})
	for _, f := range quant.Formats() {
		scale, block, global := "-", "-", "-"
		if f.Scaled() {
			scale, block = f.Scale.Name, blockText(f.Block)
		}
		if f.Global {
			global = format.F32.Name
		}
		t.AppendRow(table.Row{f.Name, f.Element, scale, block, global, f.BitsPerElement()})
	}
	return t
}

// blockText writes a block's extent: rows × columns, or what it spans.
func blockText(s quant.Shape) string {
	switch {
	case s == quant.Shape{}:
		return "tensor"
	case s.Cols == 0 && s.Rows == 1:
		return "row"
	}
	return fmt.Sprintf("%d×%d", s.Rows, s.Cols)
}

func scalarTable() table.Writer {
	t := newTable(column{"name", false}, column{"bits", true}, column{"fields", false}, column{"bias", true}, column{"max", true},
		column{"min normal", true}, column{"min", true}, column{"specials", false})
	for _, s := range format.All() {
		fields := fmt.Sprintf("e%d m%d", s.Exponent, s.Mantissa)
		if s.Integer {
			fields = "integer"
		}
		t.AppendRow(table.Row{s.Name, s.Bits(), fields, s.Bias, fmt.Sprintf("%.6g", s.Max()), exponentText(s.SmallestNormal()), exponentText(s.Smallest()), specialsText(s)})
	}
	return t
}

// exponentText writes a power of two as one.
func exponentText(v float32) string { return powerOfTwo(exponentOf(v)) }

func specialsText(s *format.Scalar) string {
	var special []string
	if s.HasInf() {
		special = append(special, "Inf")
	}
	if s.HasNaN() {
		special = append(special, "NaN")
	}
	switch {
	case s.NoZero:
		special = append(special, "no 0")
	case !s.HasNegativeZero() && !s.Unsigned:
		special = append(special, "no -0")
	}
	if len(special) == 0 {
		return "-"
	}
	return strings.Join(special, ", ")
}

// printAliases lists the other names of all formats, as wide as the terminal.
func printAliases(w io.Writer) error {
	line := func(name string, aliases []string) error {
		if len(aliases) == 0 {
			return nil
		}
		return printWrapped(w, name, 14, terminalWidth(w), strings.Join(aliases, ", "))
	}
	for _, f := range quant.Formats() {
		if err := line(f.Name, f.Aliases); err != nil {
			return err
		}
	}
	for _, s := range format.All() {
		if _, err := quant.Lookup(s.Name); err == nil {
			continue // listed among the block formats
		}
		if err := line(s.Name, s.Aliases); err != nil {
			return err
		}
	}
	return nil
}

type blockDocument struct {
	Name           string   `json:"name"`
	Aliases        []string `json:"aliases"`
	Element        string   `json:"element"`
	Scale          *string  `json:"scale"`        // null: not scaled
	BlockRows      int      `json:"block_rows"`   // 0: all
	BlockCols      int      `json:"block_cols"`   // 0: all
	Global         bool     `json:"global_scale"` // a second scale, float32, for the tensor
	BitsPerElement float64  `json:"bits_per_element"`
}

type scalarDocument struct {
	Name           string   `json:"name"`
	Aliases        []string `json:"aliases"`
	Bits           int      `json:"bits"`
	ExponentBits   int      `json:"exponent_bits"`
	MantissaBits   int      `json:"mantissa_bits"`
	Bias           int      `json:"bias"`
	Max            number   `json:"max"`
	SmallestNormal number   `json:"smallest_normal"`
	Smallest       number   `json:"smallest"`
	Inf            bool     `json:"inf"`
	NaN            bool     `json:"nan"`
	Signed         bool     `json:"signed"`
	Integer        bool     `json:"integer"`
}

func formatsDocument() any {
	var doc struct {
		Blocks  []blockDocument  `json:"block_formats"`
		Scalars []scalarDocument `json:"scalar_formats"`
	}
	for _, f := range quant.Formats() {
		b := blockDocument{Name: f.Name, Aliases: orEmpty(f.Aliases), Element: f.Element.Name, BlockRows: f.Block.Rows, BlockCols: f.Block.Cols, Global: f.Global, BitsPerElement: f.BitsPerElement()}
		if f.Scaled() {
			b.Scale = &f.Scale.Name
		}
		doc.Blocks = append(doc.Blocks, b)
	}
	for _, s := range format.All() {
		doc.Scalars = append(doc.Scalars, scalarDocument{
			Name: s.Name, Aliases: orEmpty(s.Aliases), Bits: s.Bits(), ExponentBits: s.Exponent, MantissaBits: s.Mantissa, Bias: s.Bias,
			Max: number(s.Max()), SmallestNormal: number(s.SmallestNormal()), Smallest: number(s.Smallest()),
			Inf: s.HasInf(), NaN: s.HasNaN(), Signed: !s.Unsigned, Integer: s.Integer,
		})
	}
	return doc
}

// orEmpty makes an empty list of none, which JSON would call null.
func orEmpty[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}
