package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/quant"
)

// baselines are the formats that others are compared with.
var baselines = []quant.Format{quant.BF16, quant.F32}

func benchAllCommand() *cobra.Command {
	cmd := benchWork("all", "every format beside BF16 and F32, over sizes, with a chart", `Measures products of square matrices in every format and at several sizes, and
what it takes to quantize one of the two matrices, as activations are for every
product. Prints the speed relative to BF16 and to F32, and from which size on a
format is faster than them with quantizing included; draws it as an SVG.`)
	cmd.Example = `  microscale bench all
  microscale bench all --formats mxfp8,mxfp4,nvfp4 --large --chart gemm.svg`
	only := formatList{}
	for _, f := range quant.Formats() {
		if f.Scaled() {
			only.formats = append(only.formats, f)
		}
	}
	cmd.Flags().Var(&only, "formats", "block formats `NAMES`, with commas between them (default every one with scales)")
	largest := cmd.Flags().Int("largest", 8192, "largest size `N`; sizes are powers of two from 256 on")
	large := cmd.Flags().Bool("large", false, "go on to 16384")
	cli.Exclusive(cmd, "largest", "large")
	chart := cmd.Flags().String("chart", "bench.svg", "draw the chart in `FILE`; \"\" draws none")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 500 * time.Millisecond, spent: "for each format at each size"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sizes, err := sweepSizes(*largest, *large)
		if err != nil {
			return err
		}
		if err := writable(*chart); err != nil {
			return err
		}
		if err := b.begin(); err != nil {
			return err
		}
		defer b.Close()
		formats := append(append([]quant.Format(nil), baselines...), only.formats...)
		points, err := b.Sweep(formats, sizes, *b.budget, func(p bench.Point) {
			if p.Gemm.Format == formats[len(formats)-1].Name {
				fmt.Fprintf(cmd.ErrOrStderr(), "microscale: measured size %d\n", p.Gemm.M)
			}
		})
		if err != nil {
			return err
		}
		s := sweep{formats, sizes, points}
		if *chart != "" {
			if err := writeChart(*chart, s); err != nil {
				return err
			}
		}
		return b.print(cmd, s.results(), benchDocuments(s.results()), func(w io.Writer) error {
			if err := s.print(w, *b.threads); err != nil || *chart == "" {
				return err
			}
			_, err := fmt.Fprintf(w, "\nThe chart is in %s.\n", *chart)
			return err
		})
	}
	return cmd
}

// formatList is the value of --formats: block formats with scales, each once.
type formatList struct {
	formats []quant.Format
	text    string
}

func (l *formatList) String() string { return l.text }

func (l *formatList) Type() string { return "names" }

func (l *formatList) Set(s string) error {
	var formats []quant.Format
	for _, name := range strings.Split(s, ",") {
		f, err := quant.Lookup(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		if !f.Scaled() {
			return fmt.Errorf("%s has no scales: leave it out", f)
		}
		if slices.ContainsFunc(formats, func(o quant.Format) bool { return o.Name == f.Name }) {
			return fmt.Errorf("%s is there twice: leave one out", f)
		}
		formats = append(formats, f)
	}
	l.formats, l.text = formats, s
	return nil
}

// sweepSizes returns the powers of two from 256 to the largest size, which is 16384
// where large is set.
func sweepSizes(largest int, large bool) ([]int, error) {
	const smallest, most, beyond = 256, 8192, 16384
	if largest < smallest || largest > most || largest&(largest-1) != 0 {
		return nil, cli.Misuse("--largest %d: give a power of two from %d to %d, and --large for %d", largest, smallest, most, beyond)
	}
	if large {
		largest = beyond
	}
	var sizes []int
	for n := smallest; n <= largest; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// A sweep is the points of bench all: the baselines first, then the formats.
type sweep struct {
	formats []quant.Format
	sizes   []int
	points  [][]bench.Point // by size and format
}

// speed returns how many times as fast as a baseline a format is at a size, with
// or without quantizing one of the matrices.
func (s sweep) speed(size, format, baseline int, quantizing bool) float64 {
	p := s.points[size][format]
	seconds := p.Gemm.Time.Median
	if quantizing {
		seconds += p.Quantize.Time.Median
	}
	return s.points[size][baseline].Gemm.Time.Median / seconds
}

// paysFrom returns the least size from which on a format is faster than a
// baseline at every size, quantizing included; 0 where there is none.
func (s sweep) paysFrom(format, baseline int) int {
	from := 0
	for i := len(s.sizes) - 1; i >= 0 && s.speed(i, format, baseline, true) > 1; i-- {
		from = s.sizes[i]
	}
	return from
}

// results returns everything that was measured, products before what they took.
func (s sweep) results() []bench.Result {
	var list []bench.Result
	for _, points := range s.points {
		for _, p := range points {
			list = append(list, p.Gemm, p.Quantize)
		}
	}
	return list
}

// print prints the table.
func (s sweep) print(w io.Writer, threads int) error {
	columns := []cli.Column{cli.Left("format"), cli.Left("")}
	for _, n := range s.sizes {
		columns = append(columns, cli.Right(fmt.Sprint(n)))
	}
	t := cli.NewTable(append(columns, cli.Right("pays"))...)
	for j := range baselines {
		row := table.Row{s.formats[j].Name, string(bench.Floats)}
		for i := range s.sizes {
			row = append(row, threeDigits(s.points[i][j].Gemm.Rate()))
		}
		t.AppendRow(row)
	}
	for j := len(baselines); j < len(s.formats); j++ {
		t.AppendSeparator()
		name := s.formats[j].Name
		for k := range baselines {
			for _, quantizing := range []bool{false, true} {
				what, pays := "/ "+s.formats[k].Name, ""
				if quantizing {
					what += " q"
					if pays = fmt.Sprint(s.paysFrom(j, k)); pays == "0" {
						pays = "-"
					}
				}
				row := table.Row{name, what}
				for i := range s.sizes {
					row = append(row, fmt.Sprintf("%.2f", s.speed(i, j, k, quantizing)))
				}
				t.AppendRow(append(row, pays))
				name = ""
			}
		}
	}
	_, err := fmt.Fprintf(w, `Products of square matrices of each size on %s.

%s

/ bf16  speed relative to that of the product in bf16
q       the time to quantize one of the two matrices is included
pays    the size from which on it is faster then
`, cli.Counted(threads, "thread"), t.Render())
	return err
}

// writable reports what keeps a chart from being written, before minutes of
// measuring rather than after them.
func writable(chart string) error {
	if chart == "" {
		return nil
	}
	if info, err := os.Stat(chart); err == nil && info.IsDir() {
		return fmt.Errorf("cannot draw the chart in %s: it is a directory", chart)
	}
	probe, err := os.CreateTemp(filepath.Dir(chart), ".chart-*")
	if err != nil {
		if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
			err = cause.Err // without the name of the probe
		}
		return fmt.Errorf("cannot draw the chart in %s: %w", chart, err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// writeChart draws the sweep in a file.
func writeChart(name string, s sweep) error {
	picture, err := s.chart()
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return os.WriteFile(name, picture, 0o644)
}
