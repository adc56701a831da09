package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/summary"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

func quantizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quantize SRC DST --format NAME",
		Short: "quantize a checkpoint to a block-scaled format",
		Long: `Quantize the weights of a checkpoint, and print the error of each.

` + input.Help + `

DST is created atomically when the run completes. To resume an interrupted run,
repeat the command with --resume. Several machines share the work with
--shard I/N; merge joins their parts.

--for NAME stores DST as that client reads it ("microscale formats --clients" has
the table). Without it, directories are stored as compressed-tensors (vLLM,
SGLang, transformers) if it has the format, and single files in Microscale's own
convention (plain). --convention and --scheme choose directly.

Two-dimensional weights and the experts of known families are quantized. Norms,
embeddings, the output head, routers and vision towers are not; --include and
--exclude change that. Auxiliary files are copied unchanged.`,
		Example: `  microscale quantize sample: out --format mxfp8
  microscale quantize Llama-3.2-1B Llama-3.2-1B-NVFP4 --format nvfp4 --for vllm
  microscale quantize model.safetensors small.safetensors --format mxfp6-e2m3
  microscale quantize SRC DST --format nvfp4 --convention modelopt --calibration constant
  microscale quantize SRC DST --format nvfp4 --scale-search
  microscale quantize SRC DST --format mxfp4 --exclude 'layers\.(0|31)\.' --dry-run`,
		Args: cli.SourceAndDestination,
	}
	block := cli.AddFormat(cmd)
	behavior := cli.AddProfile(cmd)
	rule := cli.AddScaleRule(cmd)
	search := cli.AddScaleSearch(cmd)
	layout := cli.AddConvention(cmd)
	scheme := cli.AddScheme(cmd)
	client := cli.AddFor(cmd)
	calibrated := cli.AddCalibration(cmd)
	var selected convert.QuantizeOptions
	cmd.Flags().Var((*cli.Patterns)(&selected.Include), "include", "quantize weights that match, even those that stay as they are by default")
	cmd.Flags().Var((*cli.Patterns)(&selected.Exclude), "exclude", "leave weights that match as they are")
	requantize := cmd.Flags().Bool("requantize", false, "quantize a SRC that is quantized already, by the values that its clients decode")
	pow2 := cmd.Flags().Bool("power-of-two-scales", false, "powers of two as the FP32 scales of the fp8 formats, as Transformer Engine's recipe for blocks has them")
	options := convert.RunOptions{}
	cmd.Flags().BoolVar(&options.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&options.AllowNonFinite, "allow-nonfinite", false, "go on where the weights hold NaN or Inf")
	cmd.Flags().BoolVar(&options.Resume, "resume", false, resumeUsage)
	shard := cli.AddShard(cmd)
	dryRun := addDryRun(cmd)
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := cli.AddThreads(cmd)
	cmd.RunE = cli.Remedied(func(cmd *cobra.Command, args []string) error {
		if !block.Given {
			return cli.Misuse("--format is missing: name a block format (microscale formats lists them)")
		}
		if !behavior.Given {
			behavior.Value = profile.For(block.Value)
		}
		q, err := cli.Quantizer(behavior.Value, block.Value, rule)
		if err != nil {
			return cli.Misuse("%v", err)
		}
		if *pow2 && q.Format.Scale != format.F32 {
			return cli.Misuse("--power-of-two-scales is for formats with f32 scales, which %s has not: leave it out", q.Format)
		}
		q.PowerOfTwo = *pow2
		q = cli.Searching(q, search.Value)
		if err := q.Validate(); err != nil {
			return cli.Misuse("%v", err)
		}
		if err := client.Choose(q.Format, layout, scheme); err != nil {
			return err
		}
		if err := cli.GgufDestination(layout, args[1]); err != nil {
			return err
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
		o := selected
		o.Quantizer, o.Scheme, o.Calibration, o.Requantize = q, scheme.Value, calibration, *requantize
		if layout.Value != nil {
			o.Convention = layout.Value.Name
		}
		plan, err := convert.PlanQuantize(source, o)
		if err == nil {
			plan, err = shard.Plan(cmd.ErrOrStderr(), plan)
		}
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if *dryRun {
			return dryRunPlan(cmd, plan, args, options.Force, *each, *asJSON)
		}
		options.Threads = int(*threads)
		result, seconds, err := runPlan(cmd, plan, "quantizing", args[1], options)
		if err != nil {
			return err
		}
		results := result.Tensors
		defer summary.WarnNonFinite(cmd.ErrOrStderr(), results) // below the table
		if *asJSON {
			stored, _ := plan.SourceBytes()
			return cli.PrintJSON(out, summary.ConversionDocument{
				Source: args[0], Destination: args[1], Format: q.Format.Name, Profile: behavior.Value.Name, Convention: plan.Convention, ScaleSearch: summary.SearchText(q.Search),
				Quantized: plan.Count("quantize"), SourceBytes: stored, Bytes: plan.Bytes(), Seconds: seconds, Tensors: summary.TensorDocuments(results),
				Resumed: result.Resumed, Finished: result.Finished,
				Extra: cli.OrEmpty(source.Extra()), Skipped: summary.SkippedDocuments(source),
			})
		}
		by := behavior.Value.Name
		if q.Search != quant.NoSearch {
			by += ", scales by " + q.Search.String()
		}
		return summary.PrintConversion(out, plan, args, result, *each, fmt.Sprintf("%d of %d weights in %s (%s, %s)", plan.Count("quantize"), len(plan.Decisions()), q.Format, by, plan.Convention), seconds)
	})
	return cmd
}

// forceUsage is what the help says of --force.
const forceUsage = "replace a checkpoint at DST once the new one is whole (while its directory is replaced it is DST.microscale-replaced; after a kill in that moment, the same command puts it back)"

// resumeUsage is what the help says of --resume.
const resumeUsage = "go on where an earlier run to DST ended, and keep what is done should this one fail; begin where there is none, do nothing where DST is whole"

// runPlan carries a plan out and reports its progress and what is left to do.
func runPlan(cmd *cobra.Command, plan *convert.Plan, what, dst string, o convert.RunOptions) (*convert.Result, float64, error) {
	_, read := plan.SourceBytes()
	m := cli.NewMeter(cmd.ErrOrStderr(), what, read)
	o.Progress = m.Report
	start := time.Now()
	result, err := plan.Run(cmd.Context(), dst, o)
	m.Close()
	if err != nil {
		left := "nothing was written to " + dst
		if o.Resume {
			left = "the same command goes on from what is done"
		}
		return nil, 0, cli.Interrupted(err, left)
	}
	for _, w := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "microscale: warning: %s\n", cli.Escaped(w))
	}
	summary.PrintLeft(cmd.ErrOrStderr(), plan.Source())
	return result, time.Since(start).Seconds(), nil
}
