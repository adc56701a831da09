package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/summary"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify SRC DST",
		Short: "compare DST with the checkpoint that it was quantized from",
		Long: `Reads both checkpoints, checks the structure of DST (every quantized weight has
its scales, every other two-dimensional weight is on the ignore list, files,
index and configuration agree) and compares every weight:

  quantized           each scale, and each decoded element, is within the bound of
                      the format: what any rule, search and rounding can do
  of another dtype    each element is that of SRC, rounded to nearest even
  all others          each bit is that of SRC

The exit status is 1 where any of this does not hold, where values are NaN or Inf
that were finite in SRC, and where one of the --client programs would reject or
misread DST. The bound finds a damaged block. It does not find an element that
moved to the other of its two neighbors, nor low precision: for that,
--min-sqnr sets the lowest SQNR that a quantized weight may have. What a method that
moves errors between elements makes, such as GPTQ, is not within the bound.

` + input.Help,
		Example: `  microscale verify sample: out
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --client vllm
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --min-sqnr 18
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --nearest --profile modelopt
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --json`,
		Args: cli.SourceAndDestination,
	}
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	nearest := cmd.Flags().Bool("nearest", false, "show what DST gains over quantizing SRC by the rules of --profile, without a search of scales")
	behavior := cli.AddProfile(cmd)
	clients := cli.AddClients(cmd)
	minSQNR := cmd.Flags().Float64("min-sqnr", 0, "fail where the SQNR of a quantized weight is below `DB` decibels (default: no limit)")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := cli.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if behavior.Given && !*nearest {
			return cli.Misuse("--profile is whose rules --nearest compares DST with: give both, or neither")
		}
		if cmd.Flags().Changed("min-sqnr") && !(*minSQNR > 0 && *minSQNR <= math.MaxFloat64) {
			return cli.Misuse("--min-sqnr is a positive number of decibels, not %g", *minSQNR)
		}
		options := verify.Options{Threads: int(*threads), Clients: cli.Names(*clients), MinSQNR: *minSQNR}
		if *nearest {
			options.Nearest = func(f quant.Format) (quant.Quantizer, error) {
				if !behavior.Given {
					return profile.For(f).Quantizer(f)
				}
				return behavior.Value.Quantizer(f)
			}
		}
		source, err := input.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		out := cmd.OutOrStdout()
		destination, err := input.Open(cmd.Context(), args[1])
		if err != nil {
			if *asJSON && cmd.Context().Err() == nil {
				unreadable := summary.VerifyDocument{Problems: []summary.ProblemDocument{{Text: cli.OneLine(err)}}, NotCompared: []string{}, Tensors: []summary.VerifiedDocument{}, Blocks: []summary.WorstDocument{}}
				err = errors.Join(err, cli.PrintJSON(out, unreadable))
			}
			return err
		}
		defer destination.Close()

		m := cli.NewMeter(cmd.ErrOrStderr(), "verifying", 0)
		start := time.Now()
		options.Progress = m.Report
		report, err := verify.Compare(cmd.Context(), source, destination, options)
		m.Close()
		if err != nil {
			return cli.Interrupted(err, "the comparison is not complete")
		}

		if *asJSON {
			err = cli.PrintJSON(out, summary.NewVerifyDocument(report))
		} else {
			err = summary.PrintVerification(out, report, args, *each, time.Since(start).Seconds())
		}
		if err == nil && !report.OK() {
			err = fmt.Errorf("%s does not agree with %s: %s, the first: %s", args[1], args[0], cli.Counted(len(report.Problems), "problem"), report.Problems[0])
		}
		return err
	}
	return cmd
}
