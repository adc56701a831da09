package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/difference"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

const diffLong = `Compare two checkpoints of one model, in any conventions and formats: which
codes, scales and values differ, and why.

  layout only               the same codes and scales in another convention
  layout only, last bit     the same, and clients of the two multiply code,
                            scale and global scale in another order, so that the
                            last bit of values differs
  other codes, same values  a cast: another format or other codes, the same bits
  format                    another format, and other values
  global scale              codes are equal, or block scales follow the global
                            scale
  scale rule                blocks of about the same maximum have other scales
  rounding                  equal scales, and codes that are neighbors
  values                    other values before quantization, or codes that were
                            calibrated
  missing, shape            of a weight

The cause of a weight is that of most of its blocks; --json has the number of
each.
The exit status is 0 if all values are equal, but for that last bit, and 1 if
not.
With the original, use microscale verify.

`

func diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two quantized checkpoints of one model",
		Long:  diffLong + input.Help,
		Example: `  microscale diff Qwen3-8B-NVFP4 Qwen3-8B-NVFP4-modelopt
  microscale diff from-llm-compressor from-microscale --each --json`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "A", "B") },
	}
	each := cmd.Flags().Bool("each", false, "print a row for each weight that differs, not only for the first 20")
	asJSON := addJSON(cmd)
	threads := flags.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var models [2]*checkpoint.Model
		for i, arg := range args {
			source, err := input.Open(cmd.Context(), arg)
			if err != nil {
				return err
			}
			defer source.Close()
			if models[i], err = checkpoint.ReadContext(cmd.Context(), source); err != nil {
				return show.Interrupted(err, "nothing was compared")
			}
			for _, p := range models[i].Problems {
				if !p.Harmless() {
					return fmt.Errorf("%s: %s", arg, p)
				}
			}
		}
		meter := show.NewMeter(cmd.ErrOrStderr(), "comparing", 0)
		report, err := difference.Compare(cmd.Context(), models[0], models[1], int(*threads), meter.Report)
		meter.Close()
		if err != nil {
			return show.Interrupted(err, "the comparison is not complete")
		}
		if err := report.Print(cmd.OutOrStdout(), args[0], args[1], *each, *asJSON); err != nil {
			return err
		}
		if n := report.Different(); n > 0 {
			return fmt.Errorf("%d of %d weights differ", n, len(report.Weights))
		}
		return nil
	}
	return cmd
}
