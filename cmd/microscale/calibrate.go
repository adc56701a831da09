package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

const calibrateLong = `Compute the largest magnitude of the input of each linear layer over a text, and
write it to a file for quantize --calibration, which stores the scales of
activations that static schemes need. With --kv-cache, do the same for keys and
values, for an FP8 KV cache.

If the name of the file ends in .safetensors, write statistics of these inputs
in its place, for quantize --method: the mean square of each column, and with
--hessian the products of the columns with each other. One file supports
all formats and methods. Under mpirun or srun, ranks divide the windows of the
text; the statistics are those of one process.

If the name ends in .gguf, write the mean squares as an importance matrix of
llama.cpp, for llama-quantize --imatrix and for quantize --calibration.`

const calibrateExample = `  microscale calibrate model --text book.txt --out amax.toml
  microscale quantize model small --format nvfp4 --calibration amax.toml
  microscale eval small --activations --text book.txt --reference model
  microscale calibrate model --text book.txt --hessian --out s.safetensors
  microscale quantize model small --format nvfp4 --calibration s.safetensors \
    --method gptq
  microscale calibrate model.gguf --text book.txt --out imatrix.gguf
  microscale quantize model.gguf small.gguf --plan q4_k_m \
    --calibration imatrix.gguf`

func calibrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "calibrate MODEL", Short: "Compute the scales of activations of a language model on a text",
		Long: calibrateLong, Example: calibrateExample,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "MODEL") },
	}
	var c evaluation.Calibration
	set := cmd.Flags()
	set.StringVar(&c.Text, "text", "", "read the text of `FILE`, or of the files of a directory (.jsonl: conversations or texts)")
	set.StringVar(&c.Out, "out", "", "write the amaxes to the new file `FILE` (TOML, or .json), statistics (.safetensors), or an "+
		"importance matrix of llama.cpp (.gguf)")
	context := set.Uint("context", 0, "tokens `N` per window (default 512)")
	set.BoolVar(&c.Cache, "kv-cache", false, "also write the amaxes of keys and values")
	addStream(cmd, &c.Stream)
	set.BoolVar(&c.Hessian, "hessian", false, "also write the products of the columns of each input with each other, which --method gptq "+
		"needs: 2·in² bytes an input")
	memory, library := flags.AddMemory(cmd), ranks.AddLibrary(cmd)
	threads, asJSON := flags.AddThreads(cmd), addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		importance := evaluation.IsImportance(c.Out)
		statistics := importance || evaluation.IsStatistics(c.Out)
		switch {
		case c.Text == "":
			return show.Misuse("--text is missing: name a file or a directory")
		case c.Out == "":
			return show.Misuse("--out is missing: name a new file")
		case strings.EqualFold(filepath.Ext(c.Out), ".dat"):
			return show.Misuse("--out %s: importance matrices are only written as GGUF files: let the name end in .gguf", show.Printable(c.Out))
		case c.Hessian && (importance || !statistics):
			return show.Misuse("--hessian is for statistics: let the name of --out end in .safetensors")
		case c.Cache && statistics:
			return show.Misuse("--kv-cache and statistics exclude each other: calibrate twice")
		}
		if c.Stream == "" && statistics {
			c.Stream = c.Out + streamSuffix
		}
		job, err := ranks.Connect(cmd, *library)
		if err != nil {
			return err
		}
		if c.Ranks = job.Group(); c.Ranks != nil && !evaluation.IsStatistics(c.Out) {
			return show.Misuse("ranks divide statistics, not amaxes or importance matrices: let the name of --out end in .safetensors, or start " +
				"one process")
		}
		c.Adjustable, c.Context, c.Threads, c.Memory = true, int(*context), job.Threads(int(*threads)), int64(*memory)
		if err := calibrating(cmd, &c, args[0]); err != nil {
			return err
		}
		result, err := c.Run(cmd.Context())
		if err = job.Settle(err); err != nil {
			return streamed(err)
		}
		return result.PrintCalibration(cmd.OutOrStdout(), c.Out, *asJSON)
	}
	return cmd
}

// calibrating completes a calibration of a model.
func calibrating(cmd *cobra.Command, c *evaluation.Calibration, model string) (err error) {
	flags.BoundGarbage()
	c.Model, c.Stderr = model, cmd.ErrOrStderr()
	c.Method, err = windows.LookupMethod("all")
	return err
}
