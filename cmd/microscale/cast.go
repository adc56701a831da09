package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/numbers"
	"github.com/microscale-go/microscale/quant"
)

const castLong = `Shows numbers in a scalar format: the code, its fields and its value.

A number is rounded to --from first, and from there to --to. The default is what
the hardware's cvt.rn.satfinite does: nearest, ties to even, and the largest
value in place of a larger one. e8m0, a scale format, rounds up as cvt.rp does.

--overflow says what becomes of values beyond the largest. With saturate all of
them become the largest, Inf too; with nonsaturating all become Inf; with
saturate-finite the finite ones become the largest, and Inf stays Inf. A format
without Inf has NaN in its place, and one without both the largest value.

` + numbers.Help + `
Patterns are those of --from. With --codes, all arguments are codes of --to, to
be decoded.

With --raw, standard input is a stream of little-endian patterns of --from, and
standard output one of codes: a byte each, two for bf16 and fp16, four for f32.`

const castExample = `  microscale cast --to e4m3 0.3952 1000 -0.001 nan
  microscale cast --to e2m1 --from bf16 --rounding half-away 0.25 0.75
  microscale cast --to e5m2 --codes 0x2d 0x7c
  microscale cast --to e4m3 --from bf16 --raw < weights.bf16 > weights.e4m3`

func castCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "cast --to FORMAT NUMBER…",
		Short:             "bits, code and value of numbers in a scalar format",
		Long:              castLong,
		Example:           castExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	to := cli.AddScalar(cmd, "to", "scalar format `NAME` to cast to: "+strings.Join(cli.Names(format.All()), ", "), "")
	from := cli.AddScalar(cmd, "from", "format `NAME` that numbers are rounded to first: f32, bf16, fp16", format.F32.Name, format.F32, format.BF16, format.FP16)
	rounding := cli.AddRounding(cmd)
	overflow := cli.AddOverflow(cmd)
	seed := cmd.Flags().Uint64("seed", 0, "seed `N` of stochastic rounding")
	codes := cmd.Flags().Bool("codes", false, "arguments are codes (0x2d, 0b101101, 45), to be decoded")
	raw := cmd.Flags().Bool("raw", false, "stream binary patterns from standard input to standard output")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cli.Exclusive(cmd, "raw", "json")
	cli.Exclusive(cmd, "raw", "codes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case to.Value == nil:
			return cli.Misuse("--to is missing: name a scalar format, such as --to e4m3")
		case *raw && len(args) > 0:
			return cli.Misuse("--raw reads standard input: leave out %q", args[0])
		case !*raw && len(args) == 0:
			return cli.Misuse("no numbers to cast: name some, or use --raw")
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
