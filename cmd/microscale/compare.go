package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
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
	f := compareFlags{recipes: flags.AddRecipes(cmd, "bf16,tensorwise,blockwise,mxfp8,nvfp4"), accumulators: flags.AddAccumulators(cmd)}
	defaults := train.DefaultConfig() // shorter, because there are several runs
	defaults.Steps, defaults.ValidateEvery, defaults.ValidationTokens = 90, 15, 4096
	f.training = flags.AddTraining(cmd, defaults)
	f.parallel = ranks.Add(cmd)
	f.seeds = cmd.Flags().Uint("seeds", 1, "train with each recipe from `N` seeds, the first being --seed")
	flags.Counts(cmd, "dp", "tp", "seeds")
	flags.AddConfig(cmd)
	f.out = cmd.Flags().String("out", "comparison", "write the report to directory `DIR`, replacing an earlier report")
	f.asJSON = addJSON(cmd)
	flags.Essential(cmd, "recipes", "steps", "seed", "seeds", "data", "hidden", "layers", "out", "json", "threads")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

// compareFlags are the flags of compare.
type compareFlags struct {
	recipes      *flags.RecipeList
	accumulators *flags.AccumulatorList
	training     *flags.TrainingFlags
	parallel     *ranks.Flags
	seeds        *uint
	out          *string
	asJSON       *bool
}

// run trains with all recipes; rank 0 writes the report and prints the results.
func (f *compareFlags) run(cmd *cobra.Command) error {
	flags.BoundGarbage()
	job, err := f.parallel.Start(cmd)
	if err != nil {
		return err
	}
	if _, err := ranks.FromFirst(job, func() (struct{}, error) { return struct{}{}, training.Reportable(*f.out) }); err != nil {
		return err
	}
	if err := job.Prepare(cmd); err != nil {
		return err
	}
	all, err := f.accumulators.Recipes(flags.WithBaseline(f.recipes.Recipes))
	if err != nil {
		return err
	}
	c, corpus, err := f.training.Config(cmd, all...)
	if err != nil {
		return err
	}
	if err := job.Configure(cmd, &c, all...); err != nil {
		return err
	}
	k := &training.Comparison{Config: c, Corpus: corpus, Trainer: job.Train, Stderr: cmd.ErrOrStderr(), Command: flags.CommandLine(cmd),
		Version: show.Version(),
		Divide: func(n int, task func(int) (report.Format, error)) ([]report.Format, error) {
			return ranks.Divide(job, n, task)
		}}
	cause := k.Run(cmd.Context(), all, flags.Int(f.seeds))
	if !job.First() {
		return cause
	}
	return k.End(cmd.OutOrStdout(), *f.out, *f.asJSON, cause)
}

// noArguments rejects arguments.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return show.Misuse("unexpected argument %q: use --data for text and --out for a directory", args[0])
	}
	return nil
}
