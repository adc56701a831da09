package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/verify"
)

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify SRC DST",
		Short: "is DST a faithful quantization of SRC",
		Long: `Reads both checkpoints, checks the structure of DST (every quantized weight has
its scales, every other two-dimensional weight is on the ignore list, files,
index and configuration agree), decodes it and prints the error of every weight.

The exit status is 1 where the structure is broken, or where values are NaN or
Inf that were finite in SRC. It is never 1 for low precision.

` + sourceHelp,
		Example: `  microscale verify sample: out
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --json`,
		Args: sourceAndDestination,
	}
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := addThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		src, source, err := openModel(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		out := cmd.OutOrStdout()
		dst, destination, err := openModel(cmd.Context(), args[1])
		if err != nil {
			if *asJSON && cmd.Context().Err() == nil {
				unreadable := verifyDocument{Problems: []problemDocument{{Text: oneLine(err)}}, Tensors: []tensorDocument{}}
				err = errors.Join(err, printJSON(out, unreadable))
			}
			return err
		}
		defer destination.Close()

		var total int64
		for _, w := range src.Weights {
			total += w.StoredBytes()
		}
		m := newMeter(cmd.ErrOrStderr(), "verifying", total)
		start := time.Now()
		report, err := verify.Compare(cmd.Context(), src, dst, verify.Options{Threads: int(*threads), Progress: m.Add})
		m.Close()
		if err != nil {
			return interrupted(err, "the comparison is not complete")
		}

		if *asJSON {
			err = printJSON(out, verifyDocument{report.OK(), problemDocuments(report.Problems), tensorDocuments(report.Tensors)})
		} else {
			err = printVerification(cmd, report, args, *each, time.Since(start).Seconds())
		}
		if err == nil && !report.OK() {
			err = fmt.Errorf("%s is not a faithful quantization of %s: %s, the first: %s", args[1], args[0], counted(len(report.Problems), "problem"), report.Problems[0])
		}
		return err
	}
	return cmd
}

type verifyDocument struct {
	OK       bool              `json:"ok"`
	Problems []problemDocument `json:"problems"`
	Tensors  []tensorDocument  `json:"tensors"`
}

func printVerification(cmd *cobra.Command, report *verify.Report, args []string, each bool, seconds float64) error {
	out := cmd.OutOrStdout()
	if err := printErrors(out, report.Tensors, each); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if !report.OK() {
		if err := printProblems(out, report.Problems); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(out, "%s is a faithful copy of %s in its format: %s compared in %s\n", printable(args[1]), printable(args[0]),
		counted(len(report.Tensors), "weight"), durationText(seconds)); err != nil {
		return err
	}
	return printSourceNonFinite(out, report.Tensors, args[0])
}
