package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/ranks"
	"github.com/microscale-go/microscale/internal/study"
	"github.com/microscale-go/microscale/train"
)

const compareLong = `Train the same small language model with each recipe, from the same seed and on
the same text in the same order. Print the losses, the gap to bf16, time,
memory, and the fractions of saturated and flushed elements. Then quantize the
model of bf16 to every format and evaluate it. DIR/report.html has all results,
with curves, operand errors and scale distributions; it loads nothing from a
network.

The recipe bf16 is always included as the baseline. If a recipe diverges, the
others continue. With --seeds, losses and gaps are means over several seeds,
with standard errors; all else is from the first seed.`

func compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Train with several recipes and report the differences",
		Long:  compareLong,
		Example: `  microscale compare
  microscale compare --recipes bf16,mxfp8,nvfp4 --steps 500 --data book.txt
  microscale compare --recipes mxfp8,nvfp4 --seeds 3
  microscale compare --recipes tensorwise --accumulate fp32,hopper-wgmma
  microscale compare --recipes mxfp8,my-recipe.toml --seed 2 --out mine --json`,
		Args: noArguments,
	}
	recipes := cli.AddRecipes(cmd, "bf16,tensorwise,blockwise,mxfp8,nvfp4")
	accumulators := cli.AddAccumulators(cmd)
	defaults := train.DefaultConfig() // shorter, because there are several runs
	defaults.Steps, defaults.ValidateEvery, defaults.ValidationTokens = 90, 15, 4096
	training := cli.AddTraining(cmd, defaults)
	parallel := ranks.Add(cmd)
	cli.Counts(cmd, "dp", "tp")
	cli.AddConfig(cmd)
	seeds := cmd.Flags().Uint("seeds", 1, "train with each recipe from `N` seeds, the first being --seed")
	out := cmd.Flags().String("out", "comparison", "write the report to directory `DIR`, replacing an earlier report")
	asJSON := addJSON(cmd)
	cli.Essential(cmd, "recipes", "steps", "seed", "seeds", "data", "hidden", "layers", "out", "json", "threads")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cli.BoundGarbage()
		if *out == "" {
			return cli.Misuse("--out is empty: name a directory for the report")
		}
		if err := study.Reportable(*out); err != nil {
			return err
		}
		job, err := parallel.Start(cmd)
		if err != nil {
			return err
		}
		if err := job.Prepare(cmd); err != nil {
			return err
		}
		all, err := accumulators.Recipes(cli.WithBaseline(recipes.Recipes))
		if err != nil {
			return err
		}
		c, corpus, err := training.Config(cmd, all...)
		if err != nil {
			return err
		}
		if err := job.Configure(&c); err != nil {
			return err
		}
		if *seeds == 0 {
			return cli.Misuse("--seeds: got 0, want at least 1")
		}
		k := &study.Comparison{Config: c, Corpus: corpus, Trainer: job.Train, Stderr: cmd.ErrOrStderr(), Command: cli.CommandLine(cmd), Version: cli.Version()}
		cause := k.Run(cmd.Context(), all, int(*seeds))
		if !job.First() {
			return cause
		}
		return k.End(cmd.OutOrStdout(), *out, *asJSON, cause)
	}
	return cmd
}

// noArguments rejects arguments.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Misuse("unexpected argument %q: use --data for text and --out for a directory", args[0])
	}
	return nil
}
