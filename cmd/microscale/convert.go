package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/summary"
)

func convertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert SRC DST --convention NAME",
		Short: "Store a quantized checkpoint in another convention",
		Long: `Store a quantized checkpoint in another convention. Names, dtypes, shapes, the
direction of scales and the configuration change; codes and block scales do not.
What the convention cannot express is kept in the metadata of the files, so that
the reverse conversion restores every bit. A GGUF file that mixes formats can be
stored in plain only, and that cannot be converted back.

It is an error if the convention does not support the block format or a weight.
Nothing is written then.

` + input.Help,
		Example: `  microscale convert Llama-3.2-1B-NVFP4 for-tensorrt --convention modelopt
  microscale convert Qwen3-8B-MXFP4 for-mlx --convention mlx
  microscale convert SRC DST --convention compressed-tensors --scheme NVFP4A16`,
		Args: cli.SourceAndDestination,
	}
	layout := cli.AddConvention(cmd)
	scheme := cli.AddScheme(cmd)
	calibration := cli.AddCalibration(cmd)
	f := addRunFlags(cmd)
	f.options.AllowNonFinite = true
	cli.Essential(cmd, "convention", "scheme", "calibration", "kv-cache", "dry-run", "each", "resume", "force", "json")
	cmd.RunE = cli.Remedied(func(cmd *cobra.Command, args []string) error {
		if err := cli.GGUFDestination(cli.ClientFlag{}, layout, args[1]); err != nil {
			return err
		}
		if layout.Value == nil {
			return cli.Misuse("--convention is missing: use one of %s", strings.Join(cli.Names(checkpoint.Conventions()), ", "))
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
		plan, err := convert.PlanRelabel(cmd.Context(), source, layout.Value.Name, scheme.Value, amaxes)
		if err != nil {
			return err
		}
		return f.run(cmd, "converting", summary.Relabeled(args[0], args[1], plan))
	})
	return cmd
}
