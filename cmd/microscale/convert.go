package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/checkpoint"
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

` + sourceHelp,
		Example: `  microscale convert Llama-3.2-1B-NVFP4 for-tensorrt --convention modelopt
  microscale convert Qwen3-8B-MXFP4 for-mlx --convention mlx
  microscale convert SRC DST --convention compressed-tensors --scheme NVFP4A16`,
		Args: sourceAndDestination,
	}
	layout := addConvention(cmd)
	scheme := addScheme(cmd)
	calibrated := addCalibration(cmd)
	options := convert.RunOptions{AllowNonFinite: true}
	cmd.Flags().BoolVar(&options.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&options.Resume, "resume", false, resumeUsage)
	shard := addShard(cmd)
	dryRun := addDryRun(cmd)
	each := cmd.Flags().Bool("each", false, "with --dry-run, a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := addThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ggufDestination(layout, args[1]); err != nil {
			return err
		}
		if layout.value == nil {
			return misuse("--convention is missing: name one of %s", strings.Join(stringers(checkpoint.Conventions()), ", "))
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
		plan, err := convert.PlanRelabel(model, convert.RelabelOptions{Convention: layout.value, Scheme: scheme.value, Calibration: calibration})
		if err == nil {
			plan, err = shard.plan(cmd.ErrOrStderr(), plan)
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
		relabeled := 0
		for _, d := range plan.Decisions {
			if d.Action == convert.Relabel && d.Weight.Quantized() {
				relabeled++
			}
		}
		name, _ := plan.Convention.Scheme(plan.Format)
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), conversionDocument{
				Source: args[0], Destination: args[1], Format: plan.Format.Name, Convention: plan.Convention.Name, Scheme: name,
				Quantized: relabeled, SourceBytes: stored, Bytes: plan.Bytes(), Seconds: seconds, Tensors: []tensorDocument{},
				Resumed: result.Resumed, Finished: result.Finished,
				Extra: orEmpty(source.Extra()), Skipped: skippedDocuments(source),
			})
		}
		if result.Finished {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is whole already: nothing was done\n", printable(args[1]))
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s → %s: %s of %s relabeled from %s to %s\n%s → %s in %s, %s/s of source\n",
			printable(args[0]), printable(args[1]), counted(relabeled, "weight"), plan.Format, model.Convention, schemeText(plan.Convention.Name, name),
			bytesText(float64(stored)), bytesText(float64(plan.Bytes())), durationText(seconds), bytesText(float64(stored)/seconds))
		return err
	}
	return cmd
}

// schemeText returns a convention and its scheme, where it has a name.
func schemeText(convention, scheme string) string {
	if scheme == "" {
		return convention
	}
	return convention + " " + scheme
}

// addConvention gives cmd --convention.
func addConvention(cmd *cobra.Command) *choice[*checkpoint.Convention] {
	names := stringers(checkpoint.Conventions())
	return addChoice(cmd, "convention", "store the result as the clients of `NAME` expect: "+strings.Join(names, ", "), "", names, lookupConvention)
}

// addScheme gives cmd --scheme.
func addScheme(cmd *cobra.Command) *choice[string] {
	names := checkpoint.SchemeNames()
	return addChoice(cmd, "scheme", "the convention's scheme `NAME`, where it has several for the format: "+strings.Join(names, ", "), "", names, func(name string) (string, error) {
		for _, n := range names {
			if strings.EqualFold(n, name) {
				return n, nil
			}
		}
		return "", fmt.Errorf("unknown scheme %q: use one of %s", name, strings.Join(names, ", "))
	})
}

// A calibrationFlag is where scales of activations come from.
type calibrationFlag struct {
	inputs string // a file or the constant; "": none
	cache  bool
}

// addCalibration gives cmd --calibration and --kv-cache.
func addCalibration(cmd *cobra.Command) *calibrationFlag {
	var c calibrationFlag
	cmd.Flags().StringVar(&c.inputs, "calibration", "", "store scales of activations: from the largest magnitudes in `FILE` (TOML or JSON), or \""+convert.ConstantCalibration+"\", 1, as NVIDIA's data-free recipe has it")
	cmd.Flags().BoolVar(&c.cache, "kv-cache", false, "store scales of an FP8 KV cache of 1, as the same recipe has them; a file of --calibration may have others")
	return &c
}

// read returns the calibration, nil where there is none.
func (c *calibrationFlag) read() (*convert.Calibration, error) {
	switch {
	case c.inputs == "" && !c.cache:
		return nil, nil
	case c.inputs == "", strings.EqualFold(c.inputs, convert.ConstantCalibration):
		return convert.NewConstantCalibration(c.inputs != "", c.cache), nil
	case c.cache:
		return nil, misuse("--kv-cache has scales of 1, and --calibration %s its own: leave one out", c.inputs)
	}
	return convert.ReadCalibration(c.inputs)
}
