package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/numbers"
	"github.com/microscale-go/microscale/mma"
)

const mmaLong = `Compute dot products as the matrix units of GPUs do, bit for bit. Without flags,
list the models; with --model alone, print its instructions and rules.

With --raw, standard input is a stream of cases, and standard output one result
for each. A case is K codes of A, K of B, C, then the scales of A and of B, in K
order. Codes wider than a byte are little-endian; narrower ones take a byte, in
its low bits. NaN and Inf are data here. C and the result have the type --out.

With --explain, show each step of one dot product: exponents, alignment, and
what it cuts off. The arguments are products A:B, or A:B:N for N of them; zeros
fill the rest of K.

` + numbers.Help

const mmaExample = `  microscale mma
  microscale mma --model hopper-wgmma
  microscale mma --model hopper-wgmma --a e4m3 --explain --c 16384 1:1:32
  microscale mma --model blackwell-mxf4nvf4 --a e2m1 --raw < cases > results`

// mmaFlags are the flags that choose a unit.
type mmaFlags struct {
	model           *cli.Choice[*mma.Model]
	a, b, scale, to *cli.Choice[*mma.Type]
	k               *int
}

func mmaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "mma [--model MODEL --a TYPE {--raw | --explain A:B…}]",
		Short:             "dot products as the matrix units of GPUs compute them",
		Long:              mmaLong,
		Example:           mmaExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := mmaFlags{model: cli.AddChoice(cmd, "model", "matrix unit `NAME`: one that microscale mma lists", "", cli.Names(mma.Models()), lookupModel)}
	f.a = addOperand(cmd, "a", "`TYPE` of A: f64, f32, tf32, bf16, f16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz")
	f.b = addOperand(cmd, "b", "`TYPE` of B (default that of A)")
	f.scale = addOperand(cmd, "scale", "`TYPE` of the block scales: ue8m0, ue4m3 (default the model's first)")
	f.to = addOperand(cmd, "out", "`TYPE` of C and the result: f32, f16, f64 (default f32; f64 for f64 operands)")
	f.k = cmd.Flags().Int("k", 0, "products `N` of a case: a multiple of the instruction's K, or the K of a shorter instruction (default K)")
	raw := cmd.Flags().Bool("raw", false, "stream binary cases from standard input to standard output")
	explain := cmd.Flags().Bool("explain", false, "show each step of one dot product")
	c := cmd.Flags().String("c", "0", "accumulator `C` to start from, with --explain")
	scalesA := cmd.Flags().StringSlice("scales-a", nil, "`SCALES` of the blocks of A, with --explain: one, or one for each block (default 1)")
	scalesB := cmd.Flags().StringSlice("scales-b", nil, "`SCALES` of the blocks of B, with --explain")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cli.Exclusive(cmd, "raw", "json")
	for _, flag := range []string{"explain", "c", "scales-a", "scales-b"} { // which each case has itself
		cli.Exclusive(cmd, "raw", flag)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		if !*raw && !*explain {
			return f.list(out, args, *asJSON)
		}
		u, k, err := f.unit()
		switch {
		case err != nil:
			return err
		case *raw && len(args) > 0:
			return cli.Misuse("--raw reads standard input: leave out %q", args[0])
		case *raw:
			return numbers.StreamCases(out, cmd.InOrStdin(), u, k)
		}
		given, err := numbers.ParseCase(u, k, args, *c, *scalesA, *scalesB)
		if err != nil {
			return err
		}
		return given.Explain(out, u, *asJSON)
	}
	return cmd
}

// lookupModel is mma.Lookup. For an unknown name, it suggests those whose name,
// or what stands before the hyphen, is nearest.
func lookupModel(name string) (*mma.Model, error) {
	m, err := mma.Lookup(name)
	if err == nil {
		return m, nil
	}
	var near []string
	least := 1 + len(name)/4
	for _, model := range mma.Models() {
		chip, _, _ := strings.Cut(model.Name, "-")
		d := min(cli.EditDistance(model.Name, name), cli.EditDistance(chip, name))
		if d < least {
			near, least = nil, d
		}
		if d == least {
			near = append(near, model.Name)
		}
	}
	if len(near) > 0 {
		return nil, fmt.Errorf("unknown model %q: did you mean %s?", name, strings.Join(near, " or "))
	}
	return nil, err
}

func addOperand(cmd *cobra.Command, flag, usage string) *cli.Choice[*mma.Type] {
	return cli.AddChoice(cmd, flag, usage, "", cli.Names(mma.Types()), mma.LookupType)
}

// unit returns the unit that the flags choose, and the products of a case.
func (f *mmaFlags) unit() (u *mma.Unit, k int, err error) {
	switch {
	case !f.model.Given:
		return nil, 0, cli.Misuse("--model is missing: name one that microscale mma lists, such as --model hopper-wgmma")
	case !f.a.Given:
		return nil, 0, cli.Misuse("--a is missing: name the type of A, such as --a %s", f.model.Value.Modes()[0].Types[0])
	}
	o := mma.Options{A: f.a.Value, B: f.b.Value, Scale: f.scale.Value, Out: f.to.Value}
	if u, err = f.model.Value.Unit(o); err != nil {
		return nil, 0, cli.Misuse("%s", err)
	}
	switch k = *f.k; {
	case k == 0:
		return u, u.K, nil
	case slices.Contains(u.Ks(), k):
		o.K = k
		u, err = f.model.Value.Unit(o)
		return u, k, err
	case k < 0 || k%u.K != 0:
		return nil, 0, cli.Misuse("--k %d: use a multiple of %d, the K of %s with %s×%s%s", k, u.K, u.Model, u.A, u.B, shorterText(u))
	}
	return u, k, nil
}

// shorterText names the shorter instructions of a unit, if it has any.
func shorterText(u *mma.Unit) string {
	text := ""
	for _, k := range u.Ks()[1:] {
		text += fmt.Sprintf(", or %d", k)
	}
	return text
}
