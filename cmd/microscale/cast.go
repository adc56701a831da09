package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

const castLong = `Convert numbers to a scalar format, and print their codes, fields and values.

A number is rounded to --from first, then to --to. The defaults match the
hardware instruction cvt.rn.satfinite: round to nearest even and saturate. e8m0,
a scale format, rounds up as cvt.rp does. With --rounding nearest-even, its ties
round up, and numbers below 1.5 times 2^-127 become 2^-127. PyTorch and
ml_dtypes round those above 2^-127 to 2^-126, for they take code 0 for zero as
they round (c10/util/Float8_e8m0fnu.h).

--overflow sets the result of values beyond the maximum:

  saturate         the maximum, also for Inf
  nonsaturating    Inf
  saturate-finite  the maximum for finite values, Inf for Inf

A format without Inf has NaN instead, with the sign of the number, and one
without both the maximum.

` + numbers.Help + `
Bit patterns are those of --from. With --codes, decode codes of --to instead.

To change the block format of a checkpoint without rounding, use microscale
convert --cast.

With --raw, standard input is a stream of little-endian patterns of --from, and
standard output one of codes: a byte each, two for bf16 and fp16, four for f32.`

const castExample = `  microscale cast --to e4m3 0.3952 1000 -0.001 nan
  microscale cast --to e2m1 --from bf16 --rounding half-away 0.25 0.75
  microscale cast --to e5m2 --codes 0x2d 0x7c
  microscale cast --to e4m3 --from bf16 --raw < weights.bf16 > weights.e4m3`

func castCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "cast --to FORMAT NUMBER…",
		Short:             "Convert numbers to a scalar format",
		Long:              castLong,
		Example:           castExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	to := flags.AddScalar(cmd, "to", "convert to scalar format `NAME`: "+strings.Join(flags.Names(format.All()), ", "), "")
	from := flags.AddScalar(cmd, "from", "round numbers to format `NAME` first: f32, bf16, fp16", format.F32.Name, format.F32, format.BF16,
		format.FP16)
	rounding := flags.AddRounding(cmd)
	overflow := flags.AddOverflow(cmd)
	seed := cmd.Flags().Uint64("seed", 0, "seed `N` of stochastic rounding")
	codes := cmd.Flags().Bool("codes", false, "decode arguments as codes (0x2d, 0b101101, 45)")
	raw := cmd.Flags().Bool("raw", false, "read binary patterns from standard input, write codes to standard output")
	asJSON := addJSON(cmd)
	flags.Exclusive(cmd, "raw", "json")
	flags.Exclusive(cmd, "raw", "codes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case to.Value == nil:
			return show.Misuse("--to is missing: name a scalar format, such as --to e4m3")
		case *raw && len(args) > 0:
			return show.Misuse("--raw reads standard input: omit %q", args[0])
		case !*raw && len(args) == 0:
			return show.Misuse("no numbers: give some, or use --raw")
		}
		c := numbers.Cast{From: from.Value, To: to.Value, Random: quant.Stream{Seed: *seed}}
		c.Conversion = format.Conversion{Rounding: rounding.Value, Overflow: overflow.Value}
		if to.Value == format.E8M0 && !rounding.Given {
			c.Conversion.Rounding = format.Up
		}
		if *raw {
			return c.Stream(cmd.OutOrStdout(), cmd.InOrStdin())
		}
		if *codes {
			return numbers.PrintCodes(cmd.OutOrStdout(), args, c.To, *asJSON)
		}
		return c.Print(cmd.OutOrStdout(), args, *asJSON)
	}
	return cmd
}
