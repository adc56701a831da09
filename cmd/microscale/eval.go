package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/study"
)

func evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval DIR",
		Short: "Compute the perplexity of a byte-level language model",
		Long: `Compute the cross-entropy of a byte-level language model in nats per byte, and
its perplexity, on the validation part of a text. DIR is an output of train, or
of quantize for such a model.`,
		Example: `  microscale eval trained-mxfp8
  microscale quantize trained-mxfp8 small --format mxfp4 && microscale eval small
  microscale eval trained-mxfp8 --calibrate amax.toml && microscale quantize trained-mxfp8 small --format nvfp4 --calibration amax.toml
  microscale eval small --activations --data book.txt --json
  microscale eval trained-mxfp8 --recipe mxfp8 --accumulate blackwell-mxf8f6f4`,
		Args: func(_ *cobra.Command, args []string) error { return cli.Named(args, "DIR") },
	}
	data := cli.AddData(cmd, "evaluate")
	tokens := cmd.Flags().Uint("tokens", 32768, "read at most `N` tokens, spread evenly over the text, but at least one sequence")
	sequence := cmd.Flags().Uint("sequence", 0, "tokens `N` per sequence (default the positions of the model, at most 1024)")
	r := cli.AddChoice(cmd, "recipe", "compute unquantized weights with recipe `NAME`, or that of a TOML file", cli.BaselineRecipe, cli.RecipeNames(), cli.FindRecipe)
	activations := cmd.Flags().Bool("activations", false, "quantize activations too, with stored scales or else scales per token, and keys and values with stored scales")
	accumulate := cmd.Flags().String("accumulate", "fp32", "add the products of linear layers as `NAME` does: fp32, a model of microscale mma, or MODEL:N, promoted to FP32 every N elements")
	calibrate := cmd.Flags().String("calibrate", "", "write the amax of each linear layer's input to `FILE` (TOML, or .json), for quantize --calibration")
	cache := cmd.Flags().Bool("kv-cache", false, "with --calibrate: also write those of keys and values, for an FP8 KV cache")
	asJSON := addJSON(cmd)
	threads := cli.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *tokens == 0:
			return cli.Misuse("--tokens: got 0, want at least 1")
		case *cache && *calibrate == "":
			return cli.Misuse("--kv-cache needs --calibrate FILE: add it")
		}
		if _, err := os.Lstat(*calibrate); *calibrate != "" && err == nil { // before the work
			return fmt.Errorf("--calibrate: %s exists: name another file, or remove it", cli.Printable(*calibrate))
		}
		if cmd.Flags().Changed("accumulate") { // the default keeps that of a recipe file
			if err := r.Value.Set("accumulate", *accumulate); err != nil {
				return cli.Misuse("--accumulate: %v", err)
			}
		}
		e := study.Evaluation{Model: args[0], Data: *data, Tokens: int(*tokens), Sequence: int(*sequence), Recipe: r.Value,
			Activations: *activations, Calibrate: *calibrate, Cache: *cache, Threads: int(*threads)}
		result, err := e.Run(cmd.Context())
		if err != nil {
			return err
		}
		return result.Print(cmd.OutOrStdout(), *asJSON)
	}
	return cmd
}
