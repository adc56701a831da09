package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

const verifyLong = `Check the structure of DST, and compare every weight with SRC. Every quantized
weight must have its scales, every other two-dimensional weight must be on the
ignore list, and files, index and configuration must agree.

  quantized       every scale and decoded element is within the bound of the
                  format: what any scale rule, search and rounding can produce;
                  or SRC is quantized, too, and every value is the same, as
                  after microscale convert --cast
  another dtype   every element is that of SRC, rounded to nearest even
  otherwise       every bit is that of SRC

The exit status is 1 if a check fails, if a value that is finite in SRC is NaN
or Inf, or if a --client program would reject or misread DST: the errors that
microscale lint DST --for CLIENT explains. The bound detects damaged blocks. It
does not detect an element that moved to its other neighbor, nor low precision:
for that, set --min-sqnr. Methods that move errors between elements, such as
GPTQ, exceed the bound. So do scales of a cast: compare it with the checkpoint
that it was cast from.

` + input.Help

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify SRC DST",
		Short: "Compare a quantized checkpoint with its source",
		Long:  verifyLong,
		Example: `  microscale verify sample: out
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --client vllm
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --min-sqnr 18
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --nearest --profile modelopt
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --json`,
		Args: flags.SourceAndDestination,
	}
	each := cmd.Flags().Bool("each", false, eachUsage)
	nearest := cmd.Flags().Bool("nearest", false, "print the SQNR gained over quantizing SRC by --profile without a scale search")
	behavior := flags.AddProfile(cmd)
	clients := flags.AddClients(cmd)
	minSQNR := cmd.Flags().Float64("min-sqnr", 0, "minimum SQNR of a quantized weight, in decibels `DB` (default no limit)")
	asJSON := addJSON(cmd)
	threads := flags.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if behavior.Given && !*nearest {
			return show.Misuse("--profile applies to --nearest: add --nearest, or omit --profile")
		}
		if cmd.Flags().Changed("min-sqnr") && !(*minSQNR > 0 && *minSQNR <= math.MaxFloat64) {
			return show.Misuse("--min-sqnr: got %g, want a positive number of decibels", *minSQNR)
		}
		o := verify.Options{Threads: int(*threads), MinSQNR: *minSQNR}
		o.Check = func(ctx context.Context, m *checkpoint.Model) ([]checkpoint.Problem, error) {
			return lint.Problems(ctx, m, *clients)
		}
		if *nearest {
			o.Nearest = func(f quant.Format) (quant.Quantizer, error) {
				if !behavior.Given {
					return profile.For(f).Quantizer(f)
				}
				return behavior.Value.Quantizer(f)
			}
		}
		return compareCheckpoints(cmd, args[0], args[1], o, *each, *asJSON)
	}
	return cmd
}

// compareCheckpoints compares two checkpoints and prints the result. It returns an error if they do not
// match.
func compareCheckpoints(cmd *cobra.Command, src, dst string, o verify.Options, each, asJSON bool) error {
	source, err := input.Open(cmd.Context(), src)
	if err != nil {
		return err
	}
	defer source.Close()
	out := cmd.OutOrStdout()
	destination, err := input.Open(cmd.Context(), dst)
	if err != nil {
		if asJSON && cmd.Context().Err() == nil {
			err = errors.Join(err, show.PrintJSON(out, conversion.Unreadable(err)))
		}
		return err
	}
	defer destination.Close()
	m := show.NewMeter(cmd.ErrOrStderr(), "verifying", 0)
	start := time.Now()
	o.Progress = reportTo(m)
	report, err := verify.Compare(cmd.Context(), source, destination, o)
	m.Close()
	if err != nil {
		return show.Interrupted(err, "the comparison is not complete")
	}
	seconds := time.Since(start).Seconds()
	if err := conversion.PrintVerification(out, src, dst, report, seconds, each, asJSON); err != nil {
		return err
	}
	if !report.OK() {
		return fmt.Errorf("%s does not match %s: %s, the first: %s", dst, src, show.Counted(len(report.Problems), "problem"),
			limits.Text(report.Problems[0].String()))
	}
	return nil
}
