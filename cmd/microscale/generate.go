package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/study"
	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

func generateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate DIR",
		Short: "text that a language model of bytes goes on with",
		Long: `Goes on with a text, byte by byte, as a model of train tells it, or what quantize
made of one. At temperature 0 each byte is the likeliest; the same seed gives
the same text, on any number of threads.`,
		Example: `  microscale generate trained-mxfp8 --prompt 'func main() {'
  microscale generate trained-mxfp8 --temperature 0 --max-tokens 50
  microscale generate small --seed 7 --top-k 20 --json`,
		Args: func(_ *cobra.Command, args []string) error { return cli.Named(args, "DIR") },
	}
	prompt := cmd.Flags().String("prompt", "\n", "the `TEXT` to go on with")
	o := llama.GenerateOptions{}
	most := cmd.Flags().Uint("max-tokens", 0, "go on for `N` bytes at most (default as many as the model has positions for)")
	temperature := cmd.Flags().Float64("temperature", 0.8, "spread `T` of the draw; 0: none")
	topK := cmd.Flags().Uint("top-k", 0, "draw from the `N` likeliest only; 0: all")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "the number `N` that the draws come of")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := cli.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !(*temperature >= 0 && *temperature <= 1000) {
			return cli.Misuse("--temperature: %g is not a number from 0 to 1000", *temperature)
		}
		m, err := study.LoadModel(args[0], llama.LoadOptions{})
		if err != nil {
			return err
		}
		o.MaxTokens, o.Temperature, o.TopK = int(*most), *temperature, int(*topK)
		out := &cli.TextWriter{W: cmd.OutOrStdout(), Escape: cli.IsTerminal(cmd.OutOrStdout())}
		var text []byte
		bf16, err := recipe.Lookup("bf16")
		if err != nil {
			return err
		}
		start := time.Now()
		for token, err := range m.Generate(cmd.Context(), nn.Scope{Recipe: bf16, Threads: int(*threads)}, []byte(*prompt), o) {
			if err != nil {
				if len(text) > 0 && !*asJSON {
					out.End()
				}
				return cli.Interrupted(err, fmt.Sprintf("after %d bytes", len(text)))
			}
			if !*asJSON {
				if len(text) == 0 {
					out.Write([]byte(*prompt))
				}
				out.Write([]byte{token})
			}
			text = append(text, token)
		}
		seconds := time.Since(start).Seconds()
		if *asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), generateDocument{
				Model: args[0], Prompt: *prompt, Text: strings.ToValidUTF8(string(text), "\ufffd"), Bytes: text, Seed: o.Seed, Temperature: o.Temperature, TopK: o.TopK,
				Tokens: len(text), Seconds: seconds, TokensPerSecond: cli.Number(float64(len(text)) / seconds),
			})
		}
		out.End()
		return out.Err
	}
	return cmd
}

// generateDocument is a text that was generated, as JSON.
type generateDocument struct {
	Model           string     `json:"model"`
	Prompt          string     `json:"prompt"`
	Text            string     `json:"text"`  // what is no UTF-8 replaced
	Bytes           []byte     `json:"bytes"` // as it is, in base64
	Seed            uint64     `json:"seed"`
	Temperature     float64    `json:"temperature"`
	TopK            int        `json:"top_k"`
	Tokens          int        `json:"tokens"`
	Seconds         float64    `json:"seconds"`
	TokensPerSecond cli.Number `json:"tokens_per_second"`
}
