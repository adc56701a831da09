package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/recipe"
)

// byteFlags are the flags of an evaluation of a byte-level model, without --text.
type byteFlags struct {
	data       *[]string
	tokens     *uint
	sequence   *uint
	recipe     *flags.Choice[recipe.Recipe]
	accumulate *string
}

var byteFlagNames = []string{"data", "tokens", "sequence", "recipe", "accumulate"}

func addByteFlags(cmd *cobra.Command) *byteFlags {
	return &byteFlags{
		data: flags.AddData(cmd, "evaluate"),
		tokens: cmd.Flags().Uint("tokens", 32768, "without --text: read at most `N` tokens, spread evenly over the text, but at least "+
			"one sequence"),
		sequence: cmd.Flags().Uint("sequence", 0, "without --text: tokens `N` per sequence (default the positions of the model, at most 1024)"),
		recipe: flags.AddChoice(cmd, "recipe", "without --text: compute unquantized weights with recipe `NAME`, or that of a TOML file",
			flags.BaselineRecipe, flags.RecipeNames(), recipe.Find),
		accumulate: cmd.Flags().String("accumulate", "fp32", "without --text: add the products of linear layers as `NAME` does: fp32, a "+
			"model of microscale mma, or MODEL:N, promoted to FP32 every N elements"),
	}
}

// run evaluates a byte-level model on --data.
func (f *byteFlags) run(cmd *cobra.Command, model string, activations bool, threads int) (*evaluation.ByteEvaluated, error) {
	for _, flag := range []string{"method", "context", "reference", "formats", "layers", "report", "stream", "receipt", "against",
		"kl-divergence-base", "beside"} {
		if cmd.Flags().Changed(flag) {
			return nil, show.Misuse("--%s applies to --text: add it", flag)
		}
	}
	if *f.tokens == 0 {
		return nil, show.Misuse("--tokens: got 0, want at least 1")
	}
	if cmd.Flags().Changed("accumulate") { // the default keeps that of a recipe file
		if err := f.recipe.Value.Set("accumulate", *f.accumulate); err != nil {
			return nil, show.Misuse("--accumulate: %v", err)
		}
	}
	e := evaluation.ByteEvaluation{Model: model, Data: *f.data, Tokens: int(*f.tokens), Sequence: int(*f.sequence), Recipe: f.recipe.Value,
		Activations: activations, Threads: threads}
	return e.Run(cmd.Context())
}
