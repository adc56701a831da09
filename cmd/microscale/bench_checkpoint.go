package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

func benchCheckpointCommand() *cobra.Command {
	cmd := benchWork("checkpoint", "Measure quantizing a checkpoint beside copying it",
		`Make a BF16 checkpoint, copy it, and quantize it to each format, all on the same
disk, which needs twice its size. The rate counts the bytes of the source; the
limit is the rate of the copy. Work ends when its data is on the disk. With
--rounds the works take turns, and the fastest of each counts. "processor" is
processor time, which other programs disturb least; "memory" is the peak
resident memory.`)
	cmd.Example = `  microscale bench checkpoint --size 4
  microscale bench checkpoint --size 1 --formats nvfp4 --dir DIR --json`
	size := cmd.Flags().Float64("size", 4, "size of the checkpoint in `GB`")
	formats := newFormatList(quant.MXFP8, quant.MXFP4, quant.NVFP4)
	cmd.Flags().Var(formats, "formats", "block formats `NAMES`, separated by commas")
	rounds := cmd.Flags().Uint("rounds", 1, "do each work `N` times")
	dir := cmd.Flags().String("dir", "", "work in `DIR` (default the system's temporary directory); nothing stays there")
	b := addBench(cmd, benchDefaults{all: "as many as the process has", budget: time.Hour, spent: "(unused: each work runs to its end)"})
	_ = cmd.Flags().MarkHidden("budget")
	cmd.RunE = flags.Interruptible(func(cmd *cobra.Command, _ []string) error {
		if !(*size > 0 && *size < 1e6) {
			return show.Misuse("--size %v: give a number of GB", *size)
		}
		if *rounds == 0 {
			return show.Misuse("--rounds is 0: want at least 1")
		}
		place := cmp.Or(*dir, os.TempDir())
		if need, free := 2**size*1e9, host.FreeBytes(place); need > free {
			return fmt.Errorf("a checkpoint and a copy of it take %s, and %s has %s free: give a smaller --size, or another --dir",
				show.BytesText(need), place, show.BytesText(free))
		}
		if err := b.begin(); err != nil {
			return err
		}
		threads := b.Threads()
		b.Close() // a conversion uses threads that are not pinned
		folder, err := os.MkdirTemp(*dir, "microscale-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		results, err := bench.Checkpoint{
			Dir: folder, Size: *size * 1e9, Formats: formats.formats, Rounds: int(*rounds), Threads: threads,
			Progress: func(op, format string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", strings.TrimSpace("measured "+op+" "+format))
			},
		}.Measure(cmd.Context())
		if err != nil {
			return show.Interrupted(err, "the measurement is incomplete, and nothing stays in "+filepath.Dir(folder))
		}
		if *b.asJSON {
			return show.PrintJSON(cmd.OutOrStdout(), checkpointDocuments(results))
		}
		return printCheckpoint(cmd.OutOrStdout(), results)
	})
	return cmd
}

// A checkpointDocument is one result as JSON.
type checkpointDocument struct {
	benchDocument
	Ratio     show.Number `json:"ratio"`     // time relative to the copy
	Processor show.Number `json:"processor"` // processor seconds; 0 if unknown
	Resident  int64       `json:"resident"`  // peak resident bytes; 0 if unknown
}

func checkpointDocuments(results []bench.FileResult) []checkpointDocument {
	var docs []checkpointDocument
	copied := results[len(results)-1]
	for _, r := range results {
		docs = append(docs, checkpointDocument{benchDocuments([]bench.Result{r.Result})[0], show.Number(r.Time.Median / copied.Time.Median),
			show.Number(r.Processor), r.Resident})
	}
	return docs
}

func printCheckpoint(w io.Writer, results []bench.FileResult) error {
	copied := results[len(results)-1]
	t := show.NewTable(show.Left(""), show.Right("time"), show.Right("of the source"), show.Right("times the copy"), show.Right("processor"),
		show.Right("memory"))
	for _, r := range results {
		memory, processor := "-", "-"
		if r.Resident > 0 {
			memory = show.BytesText(float64(r.Resident))
		}
		if r.Processor > 0 {
			processor = secondsText(r.Processor)
		}
		t.AppendRow(table.Row{cmp.Or(r.Format, r.Op), secondsText(r.Time.Median), show.ThreeDigits(r.Rate()) + " GB/s",
			show.ThreeDigits(r.Time.Median / copied.Time.Median), processor, memory})
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s of BF16, %s\n", t.Render(), show.BytesText(copied.Work), show.Counted(copied.Threads, "thread"))
	return err
}
