package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/summary"
)

func convertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert SRC DST --convention NAME",
		Short: "a quantized checkpoint to the layout of other clients",
		Long: `Stores a quantized checkpoint in another convention. No code and no scale of a
block changes; names, dtypes, shapes, the direction of scales and the
configuration do. What the convention has no place for is kept in the metadata
of the files, so that the way back gives the same tensors, to the bit.

It is refused, before anything is written, where the convention has no layout
for the block format or cannot hold one of the weights.

` + input.Help,
		Example: `  microscale convert Llama-3.2-1B-NVFP4 for-tensorrt --convention modelopt
  microscale convert Qwen3-8B-MXFP4 for-mlx --convention mlx
  microscale convert SRC DST --convention compressed-tensors --scheme NVFP4A16`,
		Args: cli.SourceAndDestination,
	}
	layout := cli.AddConvention(cmd)
	scheme := cli.AddScheme(cmd)
	calibrated := cli.AddCalibration(cmd)
	options := convert.RunOptions{AllowNonFinite: true}
	cmd.Flags().BoolVar(&options.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&options.Resume, "resume", false, resumeUsage)
	shard := cli.AddShard(cmd)
	dryRun := addDryRun(cmd)
	each := cmd.Flags().Bool("each", false, "with --dry-run, a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := cli.AddThreads(cmd)
	cmd.RunE = cli.Remedied(func(cmd *cobra.Command, args []string) error {
		if err := cli.GgufDestination(layout, args[1]); err != nil {
			return err
		}
		if layout.Value == nil {
			return cli.Misuse("--convention is missing: name one of %s", strings.Join(cli.Names(checkpoint.Conventions()), ", "))
		}
		calibration, err := calibrated.Read()
		if err != nil {
			return err
		}
		source, err := input.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		plan, err := convert.PlanRelabel(source, layout.Value.Name, scheme.Value, calibration)
		if err == nil {
			plan, err = shard.Plan(cmd.ErrOrStderr(), plan)
		}
		if err != nil {
			return err
		}
		if *dryRun {
			return dryRunPlan(cmd, plan, args, options.Force, *each, *asJSON)
		}
		options.Threads = int(*threads)
		result, seconds, err := runPlan(cmd, plan, "converting", args[1], options)
		if err != nil {
			return err
		}
		stored, _ := plan.SourceBytes()
		relabeled := plan.Count("relabel")
		if *asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), summary.ConversionDocument{
				Source: args[0], Destination: args[1], Format: plan.Format.Name, Convention: plan.Convention, Scheme: plan.Scheme,
				Quantized: relabeled, SourceBytes: stored, Bytes: plan.Bytes(), Seconds: seconds, Tensors: []summary.TensorDocument{},
				Resumed: result.Resumed, Finished: result.Finished,
				Extra: cli.OrEmpty(source.Extra()), Skipped: summary.SkippedDocuments(source),
			})
		}
		if result.Finished {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is whole already: nothing was done\n", cli.Printable(args[1]))
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s → %s: %s of %s relabeled from %s to %s\n%s → %s in %s, %s/s of source\n",
			cli.Printable(args[0]), cli.Printable(args[1]), cli.Counted(relabeled, "weight"), plan.Format, checkpoint.Read(source).Convention, summary.SchemeText(plan.Convention, plan.Scheme),
			cli.BytesText(float64(stored)), cli.BytesText(float64(plan.Bytes())), cli.DurationText(seconds), cli.BytesText(float64(stored)/seconds))
		return err
	})
	return cmd
}
