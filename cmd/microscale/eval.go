package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/study"
	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

func evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval DIR",
		Short: "the perplexity of a language model of bytes, quantized or not",
		Long: `Measures how well a language model of bytes tells the next one, on the part of
a text that train never reads: nats per byte, and perplexity, which is e to the
power of that. DIR is a directory that train wrote, or what quantize made of it.`,
		Example: `  microscale eval trained-mxfp8
  microscale quantize trained-mxfp8 small --format mxfp4 && microscale eval small
  microscale eval trained-mxfp8 --calibrate amax.toml && microscale quantize trained-mxfp8 small --format nvfp4 --calibration amax.toml
  microscale eval small --activations --data book.txt --json`,
		Args: func(_ *cobra.Command, args []string) error { return cli.Named(args, "DIR") },
	}
	data := cli.AddData(cmd, "measure on")
	tokens := cmd.Flags().Uint("tokens", 32768, "read `N` tokens at most, or one sequence, spread evenly over the text")
	sequence := cmd.Flags().Uint("sequence", 0, "tokens `N` in a sequence (default the most that the model takes, but no more than 1024)")
	r := cli.AddChoice(cmd, "recipe", "compute under the recipe `NAME`, or that of a TOML file, where weights are not quantized", "bf16", cli.RecipeNames(), recipe.Find)
	activations := cmd.Flags().Bool("activations", false, "quantize activations too: by the scales that the checkpoint stores, else every token by its own values; keys and values where their scales are stored")
	calibrate := cmd.Flags().String("calibrate", "", "write the largest magnitudes that entered each linear layer to `FILE` (TOML, or .json), for quantize --calibration")
	cache := cmd.Flags().Bool("kv-cache", false, "those of keys and values too, for the scales of an FP8 KV cache; with --calibrate")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := cli.AddThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *tokens == 0 {
			return cli.Misuse("--tokens is 0: at least 1 is needed")
		}
		if *cache && *calibrate == "" {
			return cli.Misuse("--kv-cache is of --calibrate, which is missing: name the file to write")
		}
		if *calibrate != "" { // before the work that would be lost
			if _, err := os.Lstat(*calibrate); err == nil {
				return fmt.Errorf("--calibrate: %s exists: name another file, or remove it", cli.Printable(*calibrate))
			}
		}
		m, err := study.LoadModel(args[0], llama.LoadOptions{Activations: *activations})
		if err != nil {
			return err
		}
		stored, perToken, caches := m.ActivationScales()
		if *activations && stored+perToken+caches == 0 {
			return cli.Misuse("--activations: no weight of %s is quantized, and no scale of a KV cache is stored: choose a --recipe instead", cli.Printable(args[0]))
		}
		length := int(*sequence)
		if most := m.Config.MaxPositionEmbeddings; length == 0 {
			length = min(most, 1024)
		} else if length > most {
			return cli.Misuse("--sequence: %d is more than the model takes, %d", length, most)
		}
		corpus, err := train.OpenCorpus(*data...)
		if err != nil {
			return err
		}
		ids, targets, err := corpus.Validation(max(int(*tokens)/length, 1), length)
		if err != nil {
			return err
		}
		scope := nn.Scope{Recipe: r.Value, Threads: int(*threads)}
		seen := study.NewCalibrator(*cache)
		if *calibrate != "" {
			scope.Observer.Operand = seen.Observe
		}
		if *cache {
			scope.Observer.KeysValues = seen.Cached
		}
		start := time.Now()
		e, err := train.Evaluate(cmd.Context(), m, scope, ids, targets, length)
		if err != nil {
			return cli.Interrupted(err, "nothing was measured")
		}
		seconds, loss := time.Since(start).Seconds(), e.Loss
		if *calibrate != "" {
			if err := seen.Write(*calibrate); err != nil {
				return err
			}
		}
		out := cmd.OutOrStdout()
		if *asJSON {
			return cli.PrintJSON(out, study.EvalDocument{
				Model: args[0], Quantized: m.Quantized(), Activations: *activations, StoredScales: stored, TokenScales: perToken, KVCaches: caches, Data: corpus.Sources, Tokens: len(ids), Sequence: length,
				Loss: cli.Number(loss), Perplexity: cli.Number(math.Exp(loss)), BitsPerByte: cli.Number(loss / math.Ln2), Seconds: seconds,
			})
		}
		_, err = fmt.Fprintf(out, "%s: %.4f nats per byte, perplexity %.3f, on %d tokens of %s, in %s\n%s",
			cli.Printable(args[0]), loss, math.Exp(loss), len(ids), cli.Printable(corpus.Name()), cli.DurationText(seconds), study.ActivationsText(stored, perToken, caches))
		return err
	}
	return cmd
}
