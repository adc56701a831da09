package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/identify"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

const explainLong = `Quantize a row of values, and show every step: the amax of each block and the
scale computed from it; for each value, its quotient by the scale, the neighbors
of the quotient, its code, and the decoded value. With --profile all, compare
the codes of all libraries.

With --tensor, print one block of a quantized checkpoint instead: scales, codes
and decoded values; with --source, the original values too, and beside them the
scales and codes of every library, * where they differ from the file's. Blocks
are numbered along rows, from 0.

` + numbers.Help

const explainExample = `  microscale explain --format mxfp8 0.1 -0.2 0.3952 3.5
  microscale explain --format mxfp4 --profile all 0.1 -0.7 2.5 3.4
  microscale explain --format mxfp4 --scale-rule floor 0.1 -0.7 2.5 3.9
  microscale explain --format nvfp4 --amax 12.5 0.1 -0.7 2.5 3.4
  microscale explain --tensor model.layers.0.mlp.up_proj.weight --block 7 SRC`

func explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain --format FORMAT NUMBER… | --tensor NAME SRC",
		Short:   "Quantize a row of values and show every step",
		Long:    explainLong,
		Example: explainExample,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			if cmd.Flags().Changed("tensor") {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := flags.AddFormat(cmd)
	profiles := flags.AddProfiles(cmd)
	rule := flags.AddScaleRule(cmd)
	amax := cmd.Flags().Float32("amax", 0, "amax `MAX` of the tensor that holds the values, for formats with a tensor scale (default that "+
		"of the values)")
	weight := cmd.Flags().String("tensor", "", "print a block of weight `NAME` of checkpoint SRC")
	number := cmd.Flags().Uint("block", 0, "number `I` of the block, along rows")
	original := cmd.Flags().String("source", "", "checkpoint `ORIGINAL` before quantization, for --tensor")
	flags.Exclusive(cmd, "tensor", "format")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *weight != "":
			return flags.Interruptible(func(cmd *cobra.Command, args []string) error {
				return explainBlock(cmd, args, *weight, int(*number), *original, *asJSON)
			})(cmd, args)
		case cmd.Flags().Changed("block"), *original != "":
			return show.Misuse("--block and --source are about a weight of a checkpoint: add --tensor NAME")
		case !f.Given:
			return show.Misuse("--format is missing: name a block format, such as --format mxfp8")
		case !f.Value.Scaled():
			return show.Misuse("%s has no blocks: use microscale cast --to %s", f.Value, f.Value.Element)
		}
		values, err := numbers.ParseAll(args)
		if err != nil {
			return err
		}
		var given *float32
		if cmd.Flags().Changed("amax") {
			given = amax
		}
		scaleRule, err := flags.GivenRule(rule, f.Value)
		if err != nil {
			return err
		}
		if !profiles.Given {
			profiles.Value = nil
		}
		explanations, err := numbers.ExplainAll(profiles.Value, f.Value, scaleRule, values, given)
		if err != nil {
			return err
		}
		return numbers.PrintExplanations(cmd.OutOrStdout(), f.Value, explanations, *asJSON)
	}
	return cmd
}

// explainBlock prints a block of a checkpoint.
func explainBlock(cmd *cobra.Command, args []string, name string, number int, original string, asJSON bool) error {
	if err := flags.Named(args, "SRC"); err != nil {
		return err
	}
	models, release, err := openBeside(cmd.Context(), input.Open, args[0], original)
	defer release()
	if err != nil {
		return err
	}
	b, err := identify.BlockOf(cmd.Context(), models[0], models[1], name, number)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return b.Print(cmd.OutOrStdout(), asJSON)
}
