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
)

func convertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert SRC DST --for CLIENT | --convention NAME",
		Short: "Store a quantized checkpoint in another convention",
		Long: `Store a quantized checkpoint in another convention. Names, dtypes, shapes, the
direction of scales and the configuration change; codes and block scales do not.
What the convention cannot express is kept in the metadata of the files, so that
the reverse conversion restores every bit. A GGUF file that mixes formats can be
stored in plain only, and that cannot be converted back.

--for NAME chooses the convention in which that client reads every weight.

It is an error if the convention or the client does not support the block format
or a weight. Nothing is written then.

` + input.Help,
		Example: `  microscale convert Llama-3.2-1B-NVFP4 for-tensorrt --for trtllm
  microscale convert Qwen3-8B-MXFP4 for-mlx --convention mlx
  microscale convert SRC DST --convention compressed-tensors --scheme NVFP4A16`,
		Args: flags.SourceAndDestination,
	}
	client := flags.AddFor(cmd)
	layout := flags.AddConvention(cmd)
	flags.Exclusive(cmd, "for", "convention")
	scheme := flags.AddScheme(cmd)
	calibration := flags.AddCalibration(cmd)
	f := addRunFlags(cmd)
	f.options.AllowNonFinite = true
	flags.Essential(cmd, "for", "convention", "scheme", "calibration", "kv-cache", "dry-run", "each", "resume", "force", "json")
	cmd.RunE = flags.Remedied(func(cmd *cobra.Command, args []string) error {
		if !client.Given {
			if err := flags.GGUFDestination(client, layout, args[1]); err != nil {
				return err
			}
			if layout.Value == nil {
				return show.Misuse("--for or --convention is missing: name a client (%s), or a convention (%s)",
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
		if err := client.Destination(plan.Convention, layout, args[1]); err != nil {
			return err
		}
		return f.run(cmd, "converting", conversion.Relabeled(args[0], args[1], plan))
	})
	return cmd
}
