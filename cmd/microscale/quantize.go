package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

func quantizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quantize SRC DST --format NAME",
		Short: "quantize a checkpoint to a block-scaled format",
		Long: `Quantize the weights of a checkpoint, and print the error of each.

` + sourceHelp + `

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
		Args: sourceAndDestination,
	}
	block := addFormat(cmd)
	behavior := addProfile(cmd)
	rule := addScaleRule(cmd)
	search := addScaleSearch(cmd)
	layout := addConvention(cmd)
	scheme := addScheme(cmd)
	client := addFor(cmd)
	calibrated := addCalibration(cmd)
	var selection convert.Selection
	cmd.Flags().Var((*patterns)(&selection.Include), "include", "quantize weights that match, even those that stay as they are by default")
	cmd.Flags().Var((*patterns)(&selection.Exclude), "exclude", "leave weights that match as they are")
	requantize := cmd.Flags().Bool("requantize", false, "quantize a SRC that is quantized already, by the values that its clients decode")
	pow2 := cmd.Flags().Bool("power-of-two-scales", false, "powers of two as the FP32 scales of the fp8 formats, as Transformer Engine's recipe for blocks has them")
	options := convert.RunOptions{}
	cmd.Flags().BoolVar(&options.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&options.AllowNonFinite, "allow-nonfinite", false, "go on where the weights hold NaN or Inf")
	cmd.Flags().BoolVar(&options.Resume, "resume", false, resumeUsage)
	shard := addShard(cmd)
	dryRun := addDryRun(cmd)
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := addThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !block.given {
			return misuse("--format is missing: name a block format (microscale formats lists them)")
		}
		if !behavior.given {
			behavior.value = profile.For(block.value)
		}
		q, err := quantizer(behavior.value, block.value, rule)
		if err != nil {
			return misuse("%v", err)
		}
		if *pow2 && q.Format.Scale != format.F32 {
			return misuse("--power-of-two-scales is for formats with f32 scales, which %s has not: leave it out", q.Format)
		}
		q.PowerOfTwo = *pow2
		q = searching(q, search.value)
		if err := q.Validate(); err != nil {
			return misuse("%v", err)
		}
		if err := client.choose(q.Format, layout, scheme); err != nil {
			return err
		}
		if err := ggufDestination(layout, args[1]); err != nil {
			return err
		}
		calibration, err := calibrated.read()
		if err != nil {
			return err
		}
		model, source, err := openModel(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		plan, err := convert.PlanQuantize(model, convert.QuantizeOptions{Quantizer: q, Convention: layout.value, Scheme: scheme.value, Selection: selection, Calibration: calibration, Requantize: *requantize})
		if err == nil {
			plan, err = shard.plan(cmd.ErrOrStderr(), plan)
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
		defer warnNonFinite(cmd.ErrOrStderr(), results) // below the table
		if *asJSON {
			stored, _ := plan.SourceBytes()
			return printJSON(out, conversionDocument{
				Source: args[0], Destination: args[1], Format: q.Format.Name, Profile: behavior.value.Name, Convention: plan.Convention.Name, ScaleSearch: searchText(q.Search),
				Quantized: plan.Count(convert.Quantize), SourceBytes: stored, Bytes: plan.Bytes(), Seconds: seconds, Tensors: tensorDocuments(results),
				Resumed: result.Resumed, Finished: result.Finished,
				Extra: orEmpty(source.Extra()), Skipped: skippedDocuments(source),
			})
		}
		by := behavior.value.Name
		if q.Search != quant.NoSearch {
			by += ", scales by " + q.Search.String()
		}
		return printConversion(out, plan, args, result, *each, fmt.Sprintf("%d of %d weights in %s (%s, %s)", plan.Count(convert.Quantize), len(plan.Decisions), q.Format, by, plan.Convention), seconds)
	}
	return cmd
}

// searchText names a search of scales; "" where there is none.
func searchText(s quant.Search) string {
	if s == quant.NoSearch {
		return ""
	}
	return s.String()
}

// forceUsage is what the help says of --force.
const forceUsage = "replace a checkpoint at DST once the new one is whole (while its directory is replaced it is DST.microscale-replaced; after a kill in that moment, the same command puts it back)"

// resumeUsage is what the help says of --resume.
const resumeUsage = "go on where an earlier run to DST ended, and keep what is done should this one fail; begin where there is none, do nothing where DST is whole"

// sourceAndDestination is the check of the arguments SRC and DST.
func sourceAndDestination(_ *cobra.Command, args []string) error {
	return named(args, "SRC", "DST")
}

// named checks that a command line has one argument for each of the names, and
// none that is empty.
func named(args []string, names ...string) error {
	if len(args) != len(names) {
		return misuse("%s must be given, not %s", strings.Join(names, " and "), counted(len(args), "argument"))
	}
	for i, a := range args {
		if a == "" {
			return misuse("%s is empty: name a checkpoint", names[i])
		}
	}
	return nil
}

// runPlan carries a plan out and reports its progress and what is left to do.
func runPlan(cmd *cobra.Command, plan *convert.Plan, what, dst string, o convert.RunOptions) (*convert.Result, float64, error) {
	_, read := plan.SourceBytes()
	m := newMeter(cmd.ErrOrStderr(), what, read)
	o.Progress = m.Add
	start := time.Now()
	result, err := plan.Run(cmd.Context(), dst, o)
	m.Close()
	if err != nil {
		left := "nothing was written to " + dst
		if o.Resume {
			left = "the same command goes on from what is done"
		}
		return nil, 0, interrupted(err, left)
	}
	for _, w := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "microscale: warning: %s\n", escaped(w))
	}
	printLeft(cmd.ErrOrStderr(), plan.Source.Source)
	return result, time.Since(start).Seconds(), nil
}

// conversionDocument is what quantize and dequantize did, as JSON.
type conversionDocument struct {
	Source      string            `json:"source"`
	Destination string            `json:"destination"`
	Format      string            `json:"format"`
	Profile     string            `json:"profile,omitempty"`
	Convention  string            `json:"convention,omitempty"`
	Scheme      string            `json:"scheme,omitempty"`
	ScaleSearch string            `json:"scale_search,omitempty"`
	Quantized   int               `json:"quantized"`
	SourceBytes int64             `json:"source_bytes"`
	Bytes       int64             `json:"bytes"`
	Seconds     float64           `json:"seconds"`
	Resumed     bool              `json:"resumed,omitempty"`  // an earlier run had done a part of it
	Finished    bool              `json:"finished,omitempty"` // an earlier run had done all of it: the errors are not known
	Tensors     []tensorDocument  `json:"tensors"`
	Extra       []string          `json:"extra"`   // safetensors files of the source that were not carried over
	Skipped     []skippedDocument `json:"skipped"` // other files that were not
}

// printConversion prints what quantize and dequantize did: the table of errors
// and the lines below it.
func printConversion(w io.Writer, plan *convert.Plan, args []string, result *convert.Result, each bool, what string, seconds float64) error {
	if result.Finished && len(result.Tensors) == 0 {
		_, err := fmt.Fprintf(w, "%s is whole already: nothing was done (microscale verify %s %s has the errors)\n", printable(args[1]), printable(args[0]), printable(args[1]))
		return err
	}
	if index, count, ok := plan.Part(); ok {
		what += fmt.Sprintf("; this is the part of worker %d of %d, and microscale merge %s joins them", index, count, printable(args[1]))
	}
	results := result.Tensors
	if err := printErrors(w, results, each); err != nil {
		return err
	}
	stored, _ := plan.SourceBytes()
	if _, err := fmt.Fprintf(w, "\n%s → %s: %s\n%s → %s in %s, %s/s of source\n", printable(args[0]), printable(args[1]), what,
		bytesText(float64(stored)), bytesText(float64(plan.Bytes())), durationText(seconds), bytesText(float64(stored)/seconds)); err != nil {
		return err
	}
	return printSourceNonFinite(w, results, args[0])
}
