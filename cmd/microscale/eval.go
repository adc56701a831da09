package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
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
		Args: func(_ *cobra.Command, args []string) error { return named(args, "DIR") },
	}
	data := addData(cmd, "measure on")
	tokens := cmd.Flags().Uint("tokens", 32768, "read `N` tokens at most, or one sequence, spread evenly over the text")
	sequence := cmd.Flags().Uint("sequence", 0, "tokens `N` in a sequence (default the most that the model takes, but no more than 1024)")
	r := addChoice(cmd, "recipe", "compute under the recipe `NAME`, or that of a TOML file, where weights are not quantized", "bf16", recipeNames(), recipe.Find)
	activations := cmd.Flags().Bool("activations", false, "quantize activations too: by the scales that the checkpoint stores, else every token by its own values; keys and values where their scales are stored")
	calibrate := cmd.Flags().String("calibrate", "", "write the largest magnitudes that entered each linear layer to `FILE` (TOML, or .json), for quantize --calibration")
	cache := cmd.Flags().Bool("kv-cache", false, "those of keys and values too, for the scales of an FP8 KV cache; with --calibrate")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := addThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *tokens == 0 {
			return misuse("--tokens is 0: at least 1 is needed")
		}
		if *cache && *calibrate == "" {
			return misuse("--kv-cache is of --calibrate, which is missing: name the file to write")
		}
		if *calibrate != "" { // before the work that would be lost
			if _, err := os.Lstat(*calibrate); err == nil {
				return fmt.Errorf("--calibrate: %s exists: name another file, or remove it", printable(*calibrate))
			}
		}
		m, err := loadModel(args[0], llama.LoadOptions{Activations: *activations})
		if err != nil {
			return err
		}
		scales := m.ActivationScales()
		if *activations && scales == (llama.ActivationScales{}) {
			return misuse("--activations: no weight of %s is quantized, and no scale of a KV cache is stored: choose a --recipe instead", printable(args[0]))
		}
		length := int(*sequence)
		if most := m.Config.MaxPositionEmbeddings; length == 0 {
			length = min(most, 1024)
		} else if length > most {
			return misuse("--sequence: %d is more than the model takes, %d", length, most)
		}
		corpus, err := train.OpenCorpus(*data...)
		if err != nil {
			return err
		}
		if err := corpus.Admit(length); err != nil {
			return err
		}
		scope := nn.Scope{Recipe: r.value, Threads: int(*threads)}
		seen := newCalibrator(*cache)
		if *calibrate != "" {
			scope.Observe = seen.observe
		}
		if *cache {
			scope.Cached = seen.cached
		}
		start := time.Now()
		loss, n, err := train.Evaluate(cmd.Context(), m, scope, corpus.Validation, length, int(*tokens))
		if err != nil {
			return interrupted(err, "nothing was measured")
		}
		seconds := time.Since(start).Seconds()
		if *calibrate != "" {
			if err := seen.write(*calibrate); err != nil {
				return err
			}
		}
		out := cmd.OutOrStdout()
		if *asJSON {
			return printJSON(out, evalDocument{
				Model: args[0], Quantized: m.Quantized(), Activations: *activations, StoredScales: scales.Stored, TokenScales: scales.Tokens, KVCaches: scales.Caches, Data: corpus.Sources, Tokens: n, Sequence: length,
				Loss: number(loss), Perplexity: number(math.Exp(loss)), BitsPerByte: number(loss / math.Ln2), Seconds: seconds,
			})
		}
		_, err = fmt.Fprintf(out, "%s: %.4f nats per byte, perplexity %.3f, on %d tokens of %s, in %s\n%s",
			printable(args[0]), loss, math.Exp(loss), n, printable(corpus.Name()), durationText(seconds), activationsText(scales))
		return err
	}
	return cmd
}

// activationsText says what quantized the activations, in a line; "" for nothing.
func activationsText(n llama.ActivationScales) string {
	if n == (llama.ActivationScales{}) {
		return ""
	}
	return fmt.Sprintf("activations: %s with stored scales, %d with scales per token; FP8 KV cache in %s\n",
		counted(n.Stored, "weight"), n.Tokens, counted(n.Caches, "layer"))
}

// evalDocument is what eval measured, as JSON.
type evalDocument struct {
	Model       string `json:"model"`
	Quantized   bool   `json:"quantized"`
	Activations bool   `json:"activations"`

	// What quantizes activations: weights whose input has a stored scale, weights whose
	// input has scales of each token's own, and attentions with an FP8 KV cache.
	StoredScales int `json:"stored_activation_scales"`
	TokenScales  int `json:"token_activation_scales"`
	KVCaches     int `json:"fp8_kv_caches"`

	Data        []string `json:"data"`
	Tokens      int      `json:"tokens"`
	Sequence    int      `json:"sequence"`
	Loss        number   `json:"loss"` // nats per byte
	Perplexity  number   `json:"perplexity"`
	BitsPerByte number   `json:"bits_per_byte"`
	Seconds     float64  `json:"seconds"`
}

// loadModel reads a model of bytes.
func loadModel(dir string, o llama.LoadOptions) (*llama.Model, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() && strings.HasSuffix(dir, convert.GGUFSuffix) {
		return nil, fmt.Errorf("%s: a GGUF file cannot be computed with: decode it with microscale dequantize %s %s, and put the config.json of the model beside that", printable(dir), printable(dir), filepath.Join("DIR", "model.safetensors"))
	}
	m, err := llama.Load(dir, o)
	if err != nil {
		return nil, err
	}
	if err := m.Config.RequireBytes(); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}
