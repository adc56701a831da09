package catalog

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// PrintFormats prints the block formats and the scalar formats, and the aliases of
// both unless markdown is set.
func PrintFormats(w io.Writer, markdown bool) error {
	blocks, scalars := blockTable(), scalarTable()
	if markdown {
		_, err := fmt.Fprintf(w, "%s\n\n%s\n", blocks.RenderMarkdown(), scalars.RenderMarkdown())
		return err
	}
	if _, err := fmt.Fprintf(w, "Block formats\n\n%s\n\nScalar formats\n\n%s\n\nOther names\n\n", blocks.Render(),
		scalars.Render()); err != nil {
		return err
	}
	return printAliases(w)
}

func blockTable() table.Writer {
	t := show.NewTable(show.Left("name"), show.Left("element"), show.Left("scale"), show.Left("block"), show.Left("global scale"),
		show.Right("bits/element"))
	for _, f := range quant.Formats() {
		scale, block, global := "-", "-", "-"
		if f.Scaled() {
			scale, block = f.Scale.Name, numbers.BlockText(f.Block)
		}
		if f.Global {
			global = format.F32.Name
		}
		t.AppendRow(table.Row{f.Name, f.Element, scale, block, global, f.BitsPerElement()})
	}
	return t
}

func scalarTable() table.Writer {
	t := show.NewTable(show.Left("name"), show.Right("bits"), show.Left("fields"), show.Right("bias"), show.Right("max"),
		show.Right("min normal"), show.Right("min"), show.Left("specials"))
	for _, s := range format.All() {
		fields := fmt.Sprintf("e%d m%d", s.Exponent, s.Mantissa)
		if s.Integer {
			fields = "integer"
		}
		t.AppendRow(table.Row{s.Name, s.Bits(), fields, s.Bias, fmt.Sprintf("%.6g", s.Max()), numbers.ExponentText(s.SmallestNormal()),
			numbers.ExponentText(s.Smallest()), specialsText(s)})
	}
	return t
}

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

// printAliases prints the aliases of all formats, as wide as the terminal.
func printAliases(w io.Writer) error {
	line := func(name string, aliases []string) error {
		if len(aliases) == 0 {
			return nil
		}
		return show.PrintWrapped(w, name, 14, show.TerminalWidth(w), strings.Join(aliases, ", "))
	}
	for _, f := range quant.Formats() {
		if err := line(f.Name, strings.Fields(f.Aliases)); err != nil {
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
