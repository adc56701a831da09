package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

const benchLLMLong = `Measure the tokens per second of a language model at the sizes of llama.cpp's
llama-bench: pp512 reads a prompt of 512 tokens, tg128 generates 128 tokens one
by one. MODEL is a checkpoint, as for run. --random makes one with the shape of
a published Llama and random weights, its head quantized like its layers.

The limit of a prompt is the peak of the instruction that bounds BF16 products;
that of generation is reading the weights and the KV cache once per token.`

func benchLLMCommand() *cobra.Command {
	cmd := benchWork("llm [MODEL]", "Measure prompts and generation of a language model", benchLLMLong)
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.Example = `  microscale bench llm --random 1B --format mxfp4 --threads 2
  microscale bench llm Llama-3.2-1B-MXFP4 --inputs mxint8 --json`
	var names []string
	for _, s := range bench.Shapes {
		names = append(names, s.Name)
	}
	formats := flags.Names(quant.Formats())
	random := flags.AddChoice(cmd, "random", "make a model of shape `NAME` with random weights: 135M, 1B, 3B, 8B", "", names, bench.ParseShape)
	block := flags.AddChoice(cmd, "format", "block format `NAME` of the random weights", quant.MXFP4.Name, formats, quant.Lookup)
	inputs := flags.AddInputs(cmd)
	prompt := cmd.Flags().Uint("prompt", 512, "read a prompt of `N` tokens; 0: do not")
	generate := cmd.Flags().Uint("generate", 128, "generate `N` tokens; 0: do not")
	depth := cmd.Flags().Uint("depth", 0, "begin after `N` other tokens")
	rounds := cmd.Flags().Uint("rounds", 3, "measure `N` times after one round that is not counted")
	dir := cmd.Flags().String("dir", "", "make the random model in `DIR` (default the system's temporary directory); nothing stays there")
	b := addBench(cmd, benchDefaults{budget: time.Second, spent: "for each limit"})
	flags.Essential(cmd, "random", "format", "inputs", "prompt", "generate", "rounds", "threads", "json")
	cmd.RunE = flags.Interruptible(func(cmd *cobra.Command, args []string) error {
		switch {
		case random.Given == (len(args) == 1):
			return show.Misuse("want MODEL or --random, got both or none")
		case *rounds == 0:
			return show.Misuse("--rounds is 0: want at least 1")
		case *prompt == 0 && *generate == 0:
			return show.Misuse("--prompt and --generate are 0: want one of them above 0")
		}
		if err := b.begin(); err != nil {
			return err
		}
		defer b.Close()
		var model string
		if random.Given {
			path, remove, err := temporaryModel(cmd.Context(), *dir, random.Value, block.Value, b.Threads())
			if err != nil {
				return err
			}
			defer remove()
			model = path
		} else {
			model = args[0]
		}
		l := bench.LLM{Inputs: inputs.Value, Prompt: int(*prompt), Generate: int(*generate), Depth: int(*depth), Rounds: int(*rounds)}
		l.Progress = func(test string) { fmt.Fprintf(cmd.ErrOrStderr(), "microscale: measured %s\n", test) }
		result, err := measureLLM(cmd.Context(), b, l, model)
		if err != nil {
			return show.Interrupted(err, "nothing was measured")
		}
		var timed []bench.Result
		for _, t := range result.Tests {
			timed = append(timed, bench.Result{Time: t.Time})
		}
		return b.print(cmd, timed, llmDocuments(result, b.Threads()), func(w io.Writer) error { return printLLM(w, result, b.Threads()) })
	})
	return cmd
}

// temporaryModel makes a model with random weights in a new folder of dir, which remove removes.
func temporaryModel(ctx context.Context, dir string, shape bench.Shape, block quant.Format, threads int) (path string, remove func(),
	err error) {
	folder, err := os.MkdirTemp(dir, "microscale-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(folder) }
	if path, err = writeRandom(ctx, folder, shape, block, threads); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// writeRandom makes a model with random weights in an empty folder, and returns its path.
func writeRandom(ctx context.Context, folder string, shape bench.Shape, block quant.Format, threads int) (path string, err error) {
	if need, free := 2*shape.Bytes(), host.FreeBytes(folder); need > free {
		return "", fmt.Errorf("the model takes %s while it is made, and %s has %s free: give another --dir", show.BytesText(need), folder,
			show.BytesText(free))
	}
	path, err = bench.WriteRandom(ctx, folder, shape, block, threads)
	return path, show.Interrupted(err, "nothing was measured")
}

func measureLLM(ctx context.Context, b *benchRun, l bench.LLM, model string) (bench.LLMResult, error) {
	source, err := input.Open(ctx, model)
	if err != nil {
		return bench.LLMResult{}, err
	}
	defer source.Close()
	l.Source = source
	return b.LLM(ctx, l, *b.budget)
}
