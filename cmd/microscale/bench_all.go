package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
	"github.com/microscale-go/microscale/quant"
)

// baselines are the formats without scales of bench all.
var baselines = []quant.Format{quant.BF16, quant.F32}

func benchAllCommand() *cobra.Command {
	cmd := benchWork("all", "Measure formats beside BF16 over sizes, with a report",
		`Measure products of square matrices in several formats and sizes, and quantizing
both operands from BF16. Print the speed, and the size from which a format is
faster than BF16 with both operands quantized for each product. DIR/report.html
has charts of the speed, of the share of quantizing, and a roofline; it opens in
any browser and loads nothing.

--share FILE writes the results, the processor, its features and the kernels
that it runs as JSON to send to others: it holds no names of users, machines or
files.`)
	cmd.Example = `  microscale bench all
  microscale bench all --share results.json
  microscale bench all --formats mxfp8,mxfp4,nvfp4 --large --out mine`
	only := newFormatList(quant.FP8Tensor, quant.FP8Row, quant.FP8Block, quant.MXFP8, quant.MXFP4, quant.NVFP4)
	cmd.Flags().Var(only, "formats", "block formats `NAMES`, separated by commas")
	largest := cmd.Flags().Int("largest", 8192, "largest size `N`; sizes are powers of two from 256 on")
	large := cmd.Flags().Bool("large", false, "measure up to 16384")
	flags.Exclusive(cmd, "largest", "large")
	dir := cmd.Flags().String("out", "benchmark", "write the report to directory `DIR`, replacing an earlier report; \"\" writes none")
	share := cmd.Flags().String("share", "", "write the results and the processor to a new file `FILE`, without names and paths")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 500 * time.Millisecond, spent: "for each format at each size"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sizes, err := sweepSizes(*largest, *large)
		if err != nil {
			return err
		}
		if *share != "" {
			if err := evaluation.CheckNew("the results", *share); err != nil {
				return err
			}
		}
		if *dir != "" {
			if err := training.Reportable(*dir); err != nil {
				return err
			}
		}
		if err := b.begin(); err != nil {
			return err
		}
		defer b.Close()
		s, err := b.Sweep(&b.memory, append(baselines[:len(baselines):len(baselines)], only.formats...), sizes, *b.budget, func(size int) {
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: measured size %d\n", size)
		})
		if err != nil {
			return err
		}
		r, path := s.Speed(flags.CommandLine(cmd), show.Version()), ""
		if *dir != "" {
			page, err := r.HTML()
			if err != nil {
				return err
			}
			if path, err = training.WriteReport(*dir, page); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
		}
		doc := newSweepDocument(s, r, path)
		if *share != "" {
			if err := writeShare(*share, b.Threads(), doc); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: wrote %s\n", show.Printable(*share))
		}
		return b.print(cmd, s.Results(), doc, func(w io.Writer) error { return printSpeed(w, r, path) })
	}
	return cmd
}

// printSpeed prints the table of speeds, and the path of the report if there is one.
func printSpeed(w io.Writer, r *report.Speed, path string) error {
	data := r.Table()
	var columns []show.Column
	for _, c := range data.Columns {
		columns = append(columns, show.Column{Title: c.Short, Numeric: c.Numeric})
	}
	t := show.NewTable(columns...)
	for i, row := range data.Rows {
		if i > 0 && row[0] != "" {
			t.AppendSeparator()
		}
		var cells table.Row
		for _, cell := range row {
			cells = append(cells, training.TerminalText(cell))
		}
		t.AppendRow(cells)
	}
	_, err := fmt.Fprintf(w, `%s

GOP/s      10⁹ operations per second of the product, operands quantized before
× %-4s     speed of the product relative to that
× with q.  the same, quantizing both operands from BF16 included
q. share   share of quantizing in the time of both
pays       smallest size from which on it is faster at every size, with q.
`, t.Render(), r.Baseline)
	if err == nil && path != "" {
		_, err = fmt.Fprintf(w, "\nreport: %s\n", show.Printable(path))
	}
	return err
}
