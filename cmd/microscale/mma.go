package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/catalog"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/mma"
)

const mmaLong = `Compute dot products as the matrix units of GPUs do, bit for bit. Without flags,
list the models; with --model alone, print its instructions and rules.

With --raw, read cases from standard input, and write one result for each to
standard output. A case is K codes of A, K of B, C, then the scales of A and of
B, in K order. Codes wider than a byte are little-endian; narrower ones are the
low bits of a byte. NaN and Inf are valid. C and the result have the type --out.

With --explain, show each step of one dot product: exponents, alignment, and
truncation. The arguments are products A:B, or A:B:N for N of them; zeros fill
the rest of K.

` + numbers.Help

const mmaExample = `  microscale mma
  microscale mma --model hopper-wgmma
  microscale mma --model hopper-wgmma --a e4m3 --explain --c 16384 1:1:32
  microscale mma --model blackwell-mxf4nvf4 --a e2m1 --raw < cases > results`

func mmaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "mma [--model MODEL --a TYPE {--raw | --explain A:B…}]",
		Short:             "Compute dot products as the matrix units of GPUs do",
		Long:              mmaLong,
		Example:           mmaExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	u := addUnit(cmd)
	raw := cmd.Flags().Bool("raw", false, "read binary cases from standard input, write results to standard output")
	explain := cmd.Flags().Bool("explain", false, "show each step of one dot product")
	c := cmd.Flags().String("c", "0", "with --explain: accumulator `C`")
	scalesA := cmd.Flags().StringSlice("scales-a", nil, "with --explain: block `SCALES` of A, one for all blocks or one for each (default 1)")
	scalesB := cmd.Flags().StringSlice("scales-b", nil, "with --explain: block `SCALES` of B")
	asJSON := addJSON(cmd)
	flags.Essential(cmd, "model", "a", "b", "scale", "out", "k", "raw", "explain", "c", "json")
	for _, flag := range []string{"json", "explain", "c", "scales-a", "scales-b"} {
		flags.Exclusive(cmd, "raw", flag)
	}
	for _, flag := range []string{"c", "scales-a", "scales-b"} {
		flags.Needs(cmd, flag, "explain")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		if !*raw && !*explain {
			if len(args) > 0 || u.operandsGiven() || cmd.Flags().Changed("k") {
				return show.Misuse("nothing to compute: add --raw or --explain")
			}
			return catalog.PrintUnits(out, u.model.Value, *asJSON)
		}
		if cmd.Flags().Changed("k") && *u.k == 0 {
			return show.Misuse("--k 0: a case has at least one product: omit it for the K of the instruction")
		}
		unit, k, err := u.unit()
		switch {
		case err != nil:
			return err
		case *raw && len(args) > 0:
			return show.Misuse("--raw reads standard input: omit %q", args[0])
		case *raw:
			return numbers.StreamCases(out, cmd.InOrStdin(), unit, k)
		}
		dot, err := numbers.ParseCase(unit, k, args, *c, *scalesA, *scalesB)
		if err != nil {
			return err
		}
		return dot.Explain(out, unit, *asJSON)
	}
	return cmd
}

// unitFlags are the flags that choose a matrix unit.
type unitFlags struct {
	model           *flags.Choice[*mma.Model]
	a, b, scale, to *flags.Choice[*mma.Type]
	k               *int
}

func addUnit(cmd *cobra.Command) *unitFlags {
	operand := func(flag, usage string) *flags.Choice[*mma.Type] {
		return flags.AddChoice(cmd, flag, usage, "", flags.Names(mma.Types()), mma.LookupType)
	}
	f := &unitFlags{model: flags.AddChoice(cmd, "model", "matrix unit `NAME` (microscale mma lists them)", "", flags.Names(mma.Models()),
		mma.Lookup)}
	f.a = operand("a", "`TYPE` of A: f64, f32, tf32, bf16, f16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz")
	f.b = operand("b", "`TYPE` of B (default that of A)")
	f.scale = operand("scale", "`TYPE` of block scales: ue8m0, ue4m3 (default the first of the model)")
	f.to = operand("out", "`TYPE` of C and the result: f32, f16, f64 (default f32; f64 for f64 operands)")
	f.k = cmd.Flags().Int("k", 0, "products `N` per case: a multiple of the K of the instruction, or the K of a shorter instruction "+
		"(default K)")
	return f
}

// operandsGiven reports whether the type of an operand is given.
func (f *unitFlags) operandsGiven() bool {
	return f.a.Given || f.b.Given || f.scale.Given || f.to.Given
}

// unit returns the chosen unit, and the number of products of a case.
func (f *unitFlags) unit() (u *mma.Unit, k int, err error) {
	switch {
	case !f.model.Given:
		return nil, 0, show.Misuse("--model is missing: name one that microscale mma lists, such as --model hopper-wgmma")
	case !f.a.Given:
		return nil, 0, show.Misuse("--a is missing: name the type of A, such as --a %s", f.model.Value.Modes()[0].Types[0])
	}
	return numbers.Unit(f.model.Value, mma.Options{A: f.a.Value, B: f.b.Value, Scale: f.scale.Value, Out: f.to.Value}, *f.k)
}
