package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/study"
)

func generateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate DIR",
		Short: "Generate text with a byte-level language model",
		Long: `Generate text after a prompt, byte by byte, with an output of train, or of
quantize for such a model. At temperature 0 the most likely byte is chosen. The
same seed gives the same text.`,
		Example: `  microscale generate trained-mxfp8 --prompt 'func main() {'
  microscale generate trained-mxfp8 --temperature 0 --max-tokens 50
  microscale generate small --seed 7 --top-k 20 --json`,
		Args: func(_ *cobra.Command, args []string) error { return cli.Named(args, "DIR") },
	}
	var g study.Generation
	cmd.Flags().StringVar(&g.Prompt, "prompt", "\n", "prompt `TEXT`")
	most := cmd.Flags().Uint("max-tokens", 0, "generate at most `N` bytes (default the positions of the model)")
	cmd.Flags().Float64Var(&g.Options.Temperature, "temperature", 0.8, "sampling temperature `T`; 0: choose the most likely byte")
	topK := cmd.Flags().Uint("top-k", 0, "sample from the `N` most likely bytes; 0: from all")
	cmd.Flags().Uint64Var(&g.Options.Seed, "seed", 1, "sampling seed `N`")
	asJSON := addJSON(cmd)
	threads := cli.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if t := g.Options.Temperature; !(t >= 0 && t <= 1000) {
			return cli.Misuse("--temperature: got %g, want 0 to 1000", t)
		}
		g.Model, g.Threads = args[0], int(*threads)
		g.Options.MaxTokens, g.Options.TopK = int(*most), int(*topK)
		return g.Run(cmd.Context(), cmd.OutOrStdout(), *asJSON)
	}
	return cmd
}
