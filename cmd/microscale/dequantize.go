package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/summary"
)

func dequantizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dequantize SRC DST",
		Short: "a quantized checkpoint back to floating point",
		Long: `Decodes the quantized weights of a checkpoint. In f32, the default, every value
is exactly what its code and scales say; bf16 and fp16 round it to nearest, and
the table says what that costs. Everything else is carried over.`,
		Example: `  microscale dequantize out back
  microscale dequantize Llama-3.2-1B-MXFP8 Llama-3.2-1B-decoded --dtype bf16`,
		Args: cli.SourceAndDestination,
	}
	dtype := cli.AddScalar(cmd, "dtype", "decode to `NAME`: f32, bf16 or fp16", format.F32.Name, format.F32, format.BF16, format.FP16)
	options := convert.RunOptions{AllowNonFinite: true}
	cmd.Flags().BoolVar(&options.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&options.Resume, "resume", false, resumeUsage)
	shard := cli.AddShard(cmd)
	dryRun := addDryRun(cmd)
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := cli.AddThreads(cmd)
	cmd.RunE = cli.Remedied(func(cmd *cobra.Command, args []string) error {
		source, err := input.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		decoded, _ := checkpoint.DenseDtype(dtype.Value) // the flag takes no other
		plan, err := convert.PlanDequantize(source, decoded)
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
		result, seconds, err := runPlan(cmd, plan, "decoding", args[1], options)
		if err != nil {
			return err
		}
		out, results := cmd.OutOrStdout(), result.Tensors
		defer summary.WarnNonFinite(cmd.ErrOrStderr(), results) // below the table
		if *asJSON {
			stored, _ := plan.SourceBytes()
			return cli.PrintJSON(out, summary.ConversionDocument{
				Source: args[0], Destination: args[1], Format: strings.ToLower(decoded.String()),
				Quantized: plan.Count("decode"), SourceBytes: stored, Bytes: plan.Bytes(), Seconds: seconds, Tensors: summary.TensorDocuments(results),
				Resumed: result.Resumed, Finished: result.Finished,
				Extra: cli.OrEmpty(source.Extra()), Skipped: summary.SkippedDocuments(source),
			})
		}
		return summary.PrintConversion(out, plan, args, result, *each, fmt.Sprintf("%d of %d weights decoded to %s", plan.Count("decode"), len(plan.Decisions()), dtype.Value), seconds)
	})
	return cmd
}
