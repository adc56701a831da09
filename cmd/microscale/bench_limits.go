package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

func benchLimitsCommand() *cobra.Command {
	cmd := benchWork("limits", "Measure the limits of the machine: memory and arithmetic",
		`Measure memory (rates count bytes read and bytes written) and the instructions
that bound the kernels, on one thread and on all. Streams read and write as many
bytes as quantizing does.`)
	cmd.Example = `  microscale bench limits
  microscale bench limits --threads 1 --json
  microscale bench limits --size 1`
	size := cmd.Flags().Float64("size", bench.DRAMBytes/1e6, "`MB` to read, or to write where nothing is read; small ones stay in a cache")
	b := addBench(cmd, benchDefaults{all: "one, then one for each processor", budget: 6 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		const minMB, maxMB = 0.001, 4 * bench.MaxElements / 1_000_000
		if !(*size >= minMB && *size <= maxMB) {
			return show.Misuse("--size %g: give a number of MB from %g to %d", *size, minMB, maxMB)
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
			columns = append(columns, b.Limits(&b.memory, int(*size*1e6), *b.budget))
			b.Close()
		}
		all := slices.Concat(columns...)
		return b.print(cmd, all, benchDocuments(all), func(w io.Writer) error { return printLimits(w, columns) })
	}
	return cmd
}

// printLimits prints a row for each limit, and a column for each number of threads.
func printLimits(w io.Writer, columns [][]bench.Result) error {
	titles := []show.Column{show.Left("limit")}
	for _, c := range columns {
		titles = append(titles, show.Right(show.Counted(c[0].Threads, "thread")), show.Right("±"))
	}
	t := show.NewTable(titles...)
	for i, r := range columns[0] {
		row := table.Row{limitText(r)}
		for _, c := range columns {
			row = append(row, show.ThreeDigits(c[i].Rate())+" "+string(c[i].Unit), spreadText(c[i]))
		}
		t.AppendRow(row)
	}
	_, err := fmt.Fprintf(w, "%s\n", t.Render())
	return err
}

// limitText names a limit: the operation or the instruction.
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
