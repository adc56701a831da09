package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/quant"
)

const explainLong = `Quantizes a row of values and shows every step: the largest magnitude of each
block, how it becomes the scale, and for each value the quotient by the scale,
the neighbors it lies between, its code and what the code decodes to. With
--profile all, the codes of all libraries stand side by side.

` + numbersHelp

const explainExample = `  microscale explain --format mxfp8 0.1 -0.2 0.3952 3.5
  microscale explain --format mxfp4 --profile all 0.1 -0.7 2.5 3.4
  microscale explain --format mxfp4 --scale-rule floor 0.1 -0.7 2.5 3.9
  microscale explain --format nvfp4 --amax 12.5 0.1 -0.7 2.5 3.4`

func explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explain --format FORMAT NUMBER…",
		Short:             "one block, step by step, under one profile or all of them",
		Long:              explainLong,
		Example:           explainExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := addFormat(cmd)
	profiles := addProfiles(cmd)
	rule := addScaleRule(cmd)
	amax := cmd.Flags().Float32("amax", 0, "largest magnitude `MAX` of the tensor that the values are from, for formats with a scale for the whole tensor (default that of the values)")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !f.given:
			return misuse("--format is missing: name a block format, such as --format mxfp8")
		case !f.value.Scaled():
			return misuse("%s has no blocks to explain: use microscale cast --to %s", f.value, f.value.Element)
		case len(args) == 0:
			return misuse("no values to explain: name some, such as 0.1 -0.2 3.5")
		}
		values, err := parseNumbers(args)
		if err != nil {
			return err
		}
		var given *float32
		if cmd.Flags().Changed("amax") {
			if !f.value.NeedsAmax() {
				return misuse("--amax is for formats with a scale for the whole tensor, which %s has not: leave it out", f.value)
			}
			if *amax < 0 || *amax != *amax {
				return misuse("--amax %v is not a magnitude: use a positive number", *amax)
			}
			given = amax
		}
		explanations := make([]explanation, len(profiles.value))
		for i, p := range profiles.value {
			if len(explanations) == 1 {
				if _, err := p.Quantizer(f.value); err != nil {
					return misuse("%s", err)
				}
			}
			if explanations[i], err = explain(p, f.value, rule, values, given); err != nil {
				return err
			}
		}
		out := cmd.OutOrStdout()
		switch {
		case *asJSON:
			return printJSON(out, map[string]any{"format": f.value.Name, "profiles": explanations})
		case len(explanations) == 1:
			return printSteps(out, &explanations[0])
		}
		return printComparison(out, f.value, explanations)
	}
	return cmd
}

// headline names the format and its parts.
func headline(f quant.Format) string {
	text := fmt.Sprintf("%s: %s elements, one %s scale per %s", f.Name, f.Element, f.Scale, blockText(f.Block))
	if f.Global {
		text += ", an f32 scale for the tensor"
	}
	return text
}

// printSteps shows all blocks of one profile.
func printSteps(w io.Writer, e *explanation) error {
	f := e.quantizer.Format
	var b strings.Builder
	width := terminalWidth(w)
	writeSteps(&b, width, []step{{"format", headline(f)}, {"profile", e.Profile + ": " + e.doc}})
	if f.Global {
		writeSteps(&b, width, e.globalSteps())
	}
	for i := range e.Blocks {
		d := &e.Blocks[i]
		fmt.Fprintf(&b, "\n%s\n", blockTitle(d, i, len(e.Blocks), f))
		writeSteps(&b, width, e.steps(d))
		fmt.Fprintf(&b, "\n%s\n\nSQNR %s\n", elementTable(d, f, width), decibelText(float64(d.SQNR)))
	}
	if len(e.Blocks) > 1 {
		fmt.Fprintf(&b, "\nSQNR of all blocks %s\n", decibelText(float64(e.SQNR)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeSteps writes steps in two columns, long ones on several lines.
func writeSteps(b *strings.Builder, width int, steps []step) {
	for _, s := range steps {
		_ = printWrapped(b, s.name, 9, width, s.text) // a Builder does not fail
	}
}

// blockTitle says which block d is, and that zeros fill it up.
func blockTitle(d *blockDetail, i, blocks int, f quant.Format) string {
	n := len(d.Elements)
	title := "One block"
	if blocks > 1 {
		title = fmt.Sprintf("Block %d of %d", i+1, blocks)
	}
	title += fmt.Sprintf(": %d values", n)
	if n == 1 {
		title = strings.TrimSuffix(title, "s")
	}
	if f.Block.Cols > n {
		title += fmt.Sprintf(", filled up with zeros to %d", f.Block.Cols)
	}
	return title
}

// elementTable shows the values of a block. Its codes are in binary too where
// the terminal is wide enough for that.
func elementTable(d *blockDetail, f quant.Format, width int) string {
	columns := []column{{"#", true}, {"value", true}, {"÷ scale", true}, {"between", false}, {fieldNames(f.Element), false},
		{"code", false}, {"decoded", true}, {"error", true}, {"", false}}
	t := newTable(columns...)
	for i, e := range d.Elements {
		t.AppendRow(table.Row{d.First + i, shortText(e.value), sixDigits(e.quotient), betweenText(e), bitsText(e.code, f.Element), e.Code,
			shortText(e.decoded), percentText(e.value, e.decoded), strings.Join(e.Marks, ", ")})
	}
	drawn := t.Render()
	if rule := strings.Split(drawn, "\n")[1]; text.StringWidth(rule) > width {
		const binary = 5
		t.SetColumnConfigs(append(numericColumns(columns), table.ColumnConfig{Number: binary, Hidden: true}))
		drawn = t.Render()
	}
	return drawn
}

// betweenText writes the neighbors of a quotient in their order.
func betweenText(e elementDetail) string {
	lower, upper := float64(e.Lower), float64(e.Upper)
	switch {
	case e.quotient != e.quotient:
		return "-"
	case lower == upper:
		return "exact"
	case math.IsNaN(upper):
		return fmt.Sprintf("beyond %.5g", math.Copysign(lower, float64(e.quotient)))
	case e.quotient < 0:
		return fmt.Sprintf("%.5g … %.5g", -upper, 0-lower)
	}
	return fmt.Sprintf("%.5g … %.5g", lower, upper)
}

func sixDigits(v float32) string { return fmt.Sprintf("%.6g", v) }

func decibelText(db float64) string {
	switch {
	case math.IsInf(db, 1):
		return "infinite: exact"
	case math.IsNaN(db), math.IsInf(db, -1):
		return "undefined"
	}
	return fmt.Sprintf("%.2f dB", db)
}
