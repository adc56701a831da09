package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/identify"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hf"
)

const identifyLong = `Find which rule, library and version wrote the codes and scales of a quantized
checkpoint. Marks come first: what the configuration and the metadata say.

With --source, the first 4096 blocks of each weight are quantized by every
profile. A profile is named if it makes the same scales, codes and global scale;
several are named if their bits are the same. Otherwise the verdict is unknown,
with the number of blocks that contradict each profile: codes of GPTQ, of a
search or of another source are in no profile.

Without it, codes and scales tell the rule of scales, and often the writer: the
largest code of a block excludes rules; how likely the codes are under each rule
decides between the others; -0, scales of zero blocks, the smallest scales and
the last bits of FP32 scales exclude libraries. A rule is named if all others
are excluded, by blocks, by marks or by codes that are 100 times less likely. It
is one of the profiles' rules: a scale search, GPTQ or stochastic rounding can
look like one, unless the metadata name it. Weights of fewer than 64 blocks are
unknown, unless their FP32 scales tell. docs/identify.md has the shares that
were decided.

`

func identifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identify SRC",
		Short: "Find which rule and library wrote codes and scales",
		Long:  identifyLong + input.Help,
		Example: `  microscale identify Qwen3-8B-NVFP4 --source Qwen3-8B
  microscale identify gpt-oss-20b --json`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "SRC") },
	}
	original := cmd.Flags().String("source", "", "checkpoint `ORIGINAL` before quantization")
	each := cmd.Flags().Bool("each", false, "print a row for each weight, not one for all with the same verdict")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		models, release, err := openBeside(cmd.Context(), input.Open, args[0], *original)
		defer release()
		if err != nil {
			return err
		}
		m := models[0]
		if err := identify.CheckQuantized(m, args[0]); err != nil {
			return err
		}
		weights, err := identify.Identify(cmd.Context(), m, models[1])
		if err != nil {
			return show.Interrupted(err, "nothing was identified")
		}
		return identify.Print(cmd.OutOrStdout(), args[0], *original, identify.Marks(m), weights, *each, *asJSON)
	}
	return cmd
}

// openBeside reads a checkpoint, which open opens, and the original that it was quantized from; the latter is nil if original is "".
// release closes what was opened, also after an error.
func openBeside(ctx context.Context, open func(context.Context, string) (*hf.Checkpoint, error), arg, original string) (
	models [2]*checkpoint.Model, release func(), err error) {
	var sources []*hf.Checkpoint
	release = func() {
		for _, s := range sources {
			_ = s.Close() // it was only read
		}
	}
	for i, name := range []string{arg, original} {
		if name == "" {
			continue
		}
		if i == 1 {
			open = input.Open
		}
		source, err := open(ctx, name)
		if err != nil {
			return models, release, err
		}
		sources = append(sources, source)
		if models[i], err = checkpoint.ReadContext(ctx, source); err != nil {
			return models, release, show.Interrupted(err, "nothing was printed")
		}
	}
	return models, release, nil
}
