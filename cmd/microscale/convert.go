package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	clients "github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

func convertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert SRC DST --for CLIENT | --convention NAME | --cast FORMAT",
		Short: "Store a quantized checkpoint in another convention or format",
		Long: `Store a quantized checkpoint in another convention. Names, dtypes, shapes, the
direction of scales and the configuration change; codes and block scales do not.
What the convention cannot express is kept in the metadata of the files, so that
the reverse conversion restores every bit. A GGUF file that mixes formats can be
stored in plain only, and that cannot be converted back.

--for NAME chooses the convention in which that client reads every weight.

--cast FORMAT changes the block format, without the original: each block gets
the scale and the codes of the new format that decode to the same bits. This is
possible from mxfp4 to nvfp4, mxfp8 and fp8-block128, between FP8 with scales
that are powers of two and mxfp8, from coarse to fine scales of FP8, from
int8-row to mxint8, and from nvfp4 to nvfp4, which gives weights that clients
fuse one global scale, or folds it into the block scales where clients read none
(docs/conversion.md has all pairs and their conditions). All blocks are read
before anything is written. If a block has no exact cast, the command lists it
and writes nothing, unless --inexact requantize rounds such blocks; --dry-run
says so, too. To round numbers, use microscale cast.

It is an error if the convention or the client does not support the block format
or a weight. Nothing is written then.

` + input.Help,
		Example: `  microscale convert Llama-3.2-1B-NVFP4 for-tensorrt --for trtllm
  microscale convert Qwen3-8B-MXFP4 for-mlx --convention mlx
  microscale convert SRC DST --convention compressed-tensors --scheme NVFP4A16
  microscale convert gpt-MXFP4 gpt-NVFP4 --cast nvfp4 --for trtllm`,
		Args: flags.SourceAndDestination,
	}
	client := flags.AddFor(cmd)
	layout := flags.AddConvention(cmd)
	flags.Exclusive(cmd, "for", "convention")
	scheme := flags.AddScheme(cmd)
	cast := flags.AddChoice(cmd, "cast", "change the block format to `NAME` without changing a value", "",
		flags.Names(convert.CastOptions{}.Formats()), castFormat)
	inexact := flags.AddInexact(cmd)
	calibration := flags.AddCalibration(cmd)
	f := addRunFlags(cmd)
	f.split = flags.AddSplit(cmd)
	f.options.AllowNonFinite = true
	flags.Essential(cmd, "for", "convention", "scheme", "cast", "calibration", "dry-run", "each", "resume", "force", "json")
	cmd.RunE = flags.Remedied(f.staged(func(cmd *cobra.Command, args []string) error {
		if inexact.Given && !cast.Given {
			return show.Misuse("--inexact: it says what a cast does; add --cast FORMAT")
		}
		if !client.Given {
			if err := flags.GGUFDestination(client, layout, f.split, args[1]); err != nil {
				return err
			}
			if layout.Value == nil && !cast.Given {
				return show.Misuse("--for, --convention or --cast is missing: name a client (%s), or a convention (%s)",
					strings.Join(flags.Names(clients.All()), ", "), strings.Join(flags.Names(checkpoint.Conventions()), ", "))
			}
		}
		amaxes, err := calibration.Read()
		if err != nil {
			return err
		}
		source, err := input.OpenFor(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		defer source.Close()
		if cast.Given {
			o := convert.CastOptions{Format: cast.Value, Scheme: scheme.Value, Calibration: amaxes, Requantize: inexact.Value}
			return castCheckpoint(cmd, args, source, o, client, layout, f)
		}
		if !client.Given {
			plan, err := convert.PlanRelabel(cmd.Context(), source, layout.Value.Name, scheme.Value, amaxes)
			if err != nil {
				return err
			}
			return f.run(cmd, "converting", conversion.Relabeled(args[0], args[1], plan))
		}
		plan, err := convert.PlanRelabelFor(cmd.Context(), source, client.Value.Name, scheme.Value, amaxes)
		if err != nil {
			return err
		}
		if err := client.Destination(plan.Convention, layout, f.split, args[1]); err != nil {
			return err
		}
		return f.run(cmd, "converting", conversion.Relabeled(args[0], args[1], plan))
	}))
	return cmd
}

// castFormat returns the block format of a cast. Formats to which none is cast are an error of the plan, which knows the source.
func castFormat(name string) (quant.Format, error) {
	f, err := quant.Lookup(name)
	if err != nil {
		return f, naming.Unknown("block format of casts", name, flags.Names(convert.CastOptions{}.Formats()))
	}
	return f, nil
}

// castCheckpoint converts a checkpoint to another block format.
func castCheckpoint(cmd *cobra.Command, args []string, source *hf.Checkpoint, o convert.CastOptions, client flags.ClientFlag,
	layout *flags.Choice[*checkpoint.Convention], f *runFlags) error {
	if o.Threads = int(*f.threads); client.Given {
		o.Client = client.Value.Name
	} else if layout.Value != nil {
		o.Convention = layout.Value.Name
	}
	meter := show.NewMeter(cmd.ErrOrStderr(), "reading blocks", 0)
	o.Progress = reportTo(meter)
	plan, err := convert.PlanCast(cmd.Context(), source, o)
	meter.Close()
	if err != nil {
		return show.Interrupted(err, "nothing was written to "+args[1])
	}
	if client.Given {
		if err := client.Destination(plan.Convention, layout, f.split, args[1]); err != nil {
			return err
		}
	}
	if n, _ := plan.Inexact(); n > 0 && !o.Requantize {
		if err := conversion.PrintInexact(cmd.OutOrStdout(), args[0], args[1], plan, *f.each, *f.asJSON); err != nil {
			return err
		}
	}
	return f.run(cmd, "casting", conversion.Casted(args[0], args[1], plan))
}
