package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/quant"
)

func benchLimitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "what the machine allows: memory and arithmetic",
		Long: `Measures memory (rates count bytes read and bytes written) and the instructions
that the kernels consist of, on one thread and on all. Streams read and write as
many bytes as quantizing does.

` + benchHelp,
		Example: `  microscale bench limits
  microscale bench limits --threads 1 --json
  microscale bench limits --size 1`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	size := cmd.Flags().Float64("size", dramMB, "`MB` that are read, or written where nothing is; small ones stay in a cache")
	b := addBench(cmd, benchDefaults{all: "one, then as many as there are processors", budget: 6 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(*size >= leastMB && *size <= mostMB) {
			return misuse("--size %g: give a number of MB from %g to %d", *size, leastMB, mostMB)
		}
		counts := []int{*b.threads}
		if *b.threads == 0 {
			counts = slices.Compact([]int{1, bench.Processors()})
		}
		var columns [][]bench.Result
		*b.budget /= time.Duration(len(counts))
		for _, n := range counts {
			*b.threads = n
			if err := b.begin(); err != nil {
				return err
			}
			columns = append(columns, b.limits(int(*size*1e6)))
			b.Close()
		}
		b.warn(cmd, slices.Concat(columns...))
		out := cmd.OutOrStdout()
		if *b.asJSON {
			return printJSON(out, benchDocuments(slices.Concat(columns...)))
		}
		if err := b.printMachine(out); err != nil {
			return err
		}
		titles := []column{{"limit", false}}
		for _, n := range counts {
			titles = append(titles, column{countText(n, "thread"), true}, column{"±", true})
		}
		t := newTable(titles...)
		for i, r := range columns[0] {
			row := table.Row{limitText(r)}
			for _, c := range columns {
				row = append(row, threeDigits(c[i].Rate())+" "+string(c[i].Unit), spreadText(c[i]))
			}
			t.AppendRow(row)
		}
		_, err := fmt.Fprintf(out, "%s\n", t.Render())
		return err
	}
	return cmd
}

// dramMB is more than caches hold.
const dramMB = 256

// Sizes that are measured: at most that of a matrix, of which there are two at a time.
const (
	leastMB = 0.001
	mostMB  = 4 * mostElements / 1_000_000
)

// limitText names a limit: what is done, or the instruction.
func limitText(r bench.Result) string {
	what := r.Op
	switch {
	case r.Unit != bench.Bytes:
		return r.Kernel
	case r.Format != "":
		what = r.Source + " → " + r.Format
	}
	if strings.HasSuffix(r.Kernel, string(bench.NonTemporal)) {
		what += ", " + string(bench.NonTemporal)
	}
	return what
}

// spreadText writes the spread; "-" where it is unknown, of one run.
func spreadText(r bench.Result) string {
	spread := r.Time.Spread()
	if math.IsNaN(spread) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*spread)
}

// streams are the conversions whose traffic bench limits shows.
var streams = []struct {
	source *format.Scalar
	format quant.Format
}{{format.F32, quant.MXFP8}, {format.F32, quant.MXFP4}, {format.BF16, quant.MXFP8}, {format.BF16, quant.MXFP4}}

// limits measures all limits on one team.
func (b *benchRun) limits(size int) []bench.Result {
	ways := bench.Ways()
	part := *b.budget / time.Duration(2+(2+len(streams))*len(ways))
	results := []bench.Result{b.Read(&b.memory, size, part)}
	for _, way := range ways {
		results = append(results, b.Write(&b.memory, size, way, part))
	}
	for _, way := range ways {
		results = append(results, b.Copy(&b.memory, size, way, part))
	}
	for _, s := range streams {
		elements := float64(size) / float64(s.source.Bits()/8)
		for _, way := range ways {
			r := b.Stream(&b.memory, size, int(elements*s.format.BitsPerElement()/8), way, part)
			r.Format, r.Source = s.format.Name, s.source.Name
			results = append(results, r)
		}
	}
	return append(results, b.Peaks(part)...)
}
