package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/numbers"
)

const explainLong = `Quantizes a row of values and shows every step: the largest magnitude of each
block, how it becomes the scale, and for each value the quotient by the scale,
the neighbors it lies between, its code and what the code decodes to. With
--profile all, the codes of all libraries stand side by side.

` + numbers.Help

const explainExample = `  microscale explain --format mxfp8 0.1 -0.2 0.3952 3.5
  microscale explain --format mxfp4 --profile all 0.1 -0.7 2.5 3.4
  microscale explain --format mxfp4 --scale-rule floor 0.1 -0.7 2.5 3.9
  microscale explain --format nvfp4 --amax 12.5 0.1 -0.7 2.5 3.4`

func explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explain --format FORMAT NUMBER…",
		Short:             "one block, step by step, under one profile or all of them",
		Long:              explainLong,
		Example:           explainExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cli.AddFormat(cmd)
	profiles := cli.AddProfiles(cmd)
	rule := cli.AddScaleRule(cmd)
	amax := cmd.Flags().Float32("amax", 0, "largest magnitude `MAX` of the tensor that the values are from, for formats with a scale for the whole tensor (default that of the values)")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !f.Given:
			return cli.Misuse("--format is missing: name a block format, such as --format mxfp8")
		case !f.Value.Scaled():
			return cli.Misuse("%s has no blocks to explain: use microscale cast --to %s", f.Value, f.Value.Element)
		case len(args) == 0:
			return cli.Misuse("no values to explain: name some, such as 0.1 -0.2 3.5")
		}
		values, err := numbers.ParseAll(args)
		if err != nil {
			return err
		}
		var given *float32
		if cmd.Flags().Changed("amax") {
			if !f.Value.NeedsAmax() {
				return cli.Misuse("--amax is for formats with a scale for the whole tensor, which %s has not: leave it out", f.Value)
			}
			if *amax < 0 || *amax != *amax {
				return cli.Misuse("--amax %v is not a magnitude: use a positive number", *amax)
			}
			given = amax
		}
		scaleRule, err := cli.GivenRule(rule, f.Value)
		if err != nil {
			return err
		}
		explanations := make([]numbers.Explanation, len(profiles.Value))
		for i, p := range profiles.Value {
			if len(explanations) == 1 {
				if _, err := p.Quantizer(f.Value); err != nil {
					return cli.Misuse("%s", err)
				}
			}
			if explanations[i], err = numbers.Explain(p, f.Value, scaleRule, values, given); err != nil {
				return err
			}
		}
		out := cmd.OutOrStdout()
		switch {
		case *asJSON:
			return cli.PrintJSON(out, map[string]any{"format": f.Value.Name, "profiles": explanations})
		case len(explanations) == 1:
			return numbers.PrintSteps(out, &explanations[0])
		}
		return numbers.PrintComparison(out, f.Value, explanations)
	}
	return cmd
}
