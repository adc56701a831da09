package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/study"
	"github.com/microscale-go/microscale/train"
)

func compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "recipes side by side: the same model, text and seed under each",
		Long: `Trains the same small language model under each recipe, from the same seed on the
same text in the same order, and prints what each cost: losses, the gap to bf16,
time, bytes, and how many elements were saturated or flushed. Then quantizes the
model of bf16 to every format and evaluates it. All of it, with curves, errors of
operands and distributions of scales, is in DIR/report.html, which opens in any
browser and loads nothing.

The recipe bf16 is always among them, for the others are compared with it. One
that diverges does not keep the others from ending. With --seeds the gaps are means
over several seeds, with their standard errors; all but losses is of the first.`,
		Example: `  microscale compare
  microscale compare --recipes bf16,mxfp8,nvfp4 --steps 500 --data book.txt
  microscale compare --recipes mxfp8,nvfp4 --seeds 3
  microscale compare --recipes mxfp8,my-recipe.toml --seed 2 --out mine --json`,
		Args: noArguments,
	}
	recipes := cli.AddRecipes(cmd, "bf16,tensorwise,blockwise,mxfp8,nvfp4")
	defaults := train.DefaultConfig() // shorter, for there are several runs
	defaults.Steps, defaults.ValidateEvery, defaults.ValidationTokens = 120, 20, 4096
	training := cli.AddTraining(cmd, defaults)
	seeds := cmd.Flags().Uint("seeds", 1, "train under each recipe from `N` seeds: --seed and those after it")
	out := cmd.Flags().String("out", "comparison", "write the report to the directory `DIR`, in place of an earlier report")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cli.BoundGarbage()
		if *out == "" {
			return cli.Misuse("--out names no directory: name one for the report")
		}
		if err := study.Reportable(*out); err != nil {
			return err
		}
		all := cli.WithBaseline(recipes.Recipes)
		c, corpus, err := training.Config(cmd, all...)
		if err != nil {
			return err
		}
		if *seeds == 0 {
			return cli.Misuse("--seeds is 0: at least 1 is needed")
		}
		k := &study.Comparison{Config: c, Corpus: corpus, Stderr: cmd.ErrOrStderr(), Command: cli.CommandLine(cmd), Version: cli.Version()}
		cause := k.Run(cmd.Context(), all, int(*seeds))
		return k.End(cmd.OutOrStdout(), *out, *asJSON, cause)
	}
	return cmd
}
