package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

const quantizeLong = `Quantize the weights of a checkpoint, and print the error of each.

` + input.Help + `

DST is created atomically when the run completes. To resume an interrupted run,
repeat the command with --resume. Several machines share the work with
--shard I/N; merge joins their parts.

--text FILE chooses codes by what flows through each layer while the model reads
the text, or a line of JSON a conversation ({"messages": [...]}, file.jsonl),
which its chat template writes. This loses least, and takes minutes.

--for NAME stores DST as that client loads it without options (microscale
formats --clients prints the table). Weights that the client cannot read stay
unquantized; if these are most of the model, nothing is written. Without it,
directories and GGUF files are stored as compressed-tensors (vLLM, SGLang,
transformers) if it has the format, and other files in Microscale's own
convention (plain). --convention and --scheme choose directly.

Two-dimensional weights and the experts of known families are quantized. Norms,
embeddings, the output head, routers and vision towers are not; --include and
--exclude change that. Auxiliary files are copied unchanged. A GGUF file becomes
a directory with its configuration and tokenizer, or one file of weights if DST
ends in .safetensors.`

const quantizeExample = `  microscale quantize sample: out --format mxfp8
  microscale quantize Llama-3.2-1B Llama-3.2-1B-NVFP4 --format nvfp4 --for vllm
  microscale quantize model.safetensors small.safetensors --format mxfp6-e2m3
  microscale quantize SRC DST --format nvfp4 --scale-search
  microscale quantize SRC DST --format nvfp4 --activations book.txt
  microscale quantize SRC DST --format nvfp4 --text book.txt --resume
  microscale quantize model.gguf DST --format mxfp4 --requantize
  microscale quantize SRC DST --format mxfp4 --exclude 'layers\.(0|31)\.'`

func quantizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "quantize SRC DST --format NAME",
		Short:   "Quantize a checkpoint to a block-scaled format",
		Long:    quantizeLong,
		Example: quantizeExample,
		Args:    flags.SourceAndDestination,
	}
	block := flags.AddFormat(cmd)
	client := flags.AddFor(cmd)
	behavior := flags.AddProfile(cmd)
	rule := flags.AddScaleRule(cmd)
	search := flags.AddScaleSearch(cmd)
	powerOfTwo := cmd.Flags().Bool("power-of-two-scales", false, "round the FP32 scales of the fp8 formats to powers of two, as "+
		"Transformer Engine does for blocks")
	layout := flags.AddConvention(cmd)
	scheme := flags.AddScheme(cmd)
	flags.Exclusive(cmd, "for", "convention")
	statistics := flags.AddCalibration(cmd)
	activations := cmd.Flags().String("activations", "", "quantize activations, too: store their scales, computed from their amaxes over "+
		"the text of `FILE`, or of the files of a directory, "+
		"or from those in statistics (.safetensors)")
	statistics.AddMethod(cmd)
	text := addText(cmd)
	flags.Exclusive(cmd, "text", "calibration")
	var o convert.QuantizeOptions
	cmd.Flags().Var((*flags.Patterns)(&o.Include), "include", "also quantize weights whose names match, such as embeddings")
	cmd.Flags().Var((*flags.Patterns)(&o.Exclude), "exclude", "do not quantize weights whose names match")
	cmd.Flags().BoolVar(&o.Requantize, "requantize", false, "quantize the decoded values of a quantized SRC")
	cmd.Flags().BoolVar(&o.KeepF32, "keep-f32", false, "leave the unquantized weights of an F32 model in F32; by default they are rounded "+
		"to BF16, to which transformers decodes codes")
	f := addRunFlags(cmd)
	flags.Exclusive(cmd, "activations", "shard") // workers need one file of amaxes, or of statistics
	flags.Exclusive(cmd, "text", "shard")
	cmd.Flags().BoolVar(&f.options.AllowNonFinite, "allow-nonfinite", false, "quantize weights that hold NaN or Inf")
	flags.Essential(cmd, "format", "for", "text", "activations", "include", "exclude", "dry-run", "resume", "force", "json")
	cmd.RunE = flags.Remedied(func(cmd *cobra.Command, args []string) error {
		if !block.Given {
			return show.Misuse("--format is missing: name a block format (microscale formats lists them)")
		}
		if err := client.Choose(block.Value, layout, scheme); err != nil {
			return err
		}
		p, err := chosenProfile(behavior, block.Value, layout.Value)
		if err != nil {
			return err
		}
		if o.Quantizer, err = quantizer(p, block.Value, rule, search, *powerOfTwo); err != nil {
			return show.Misuse("%v", err)
		}
		if err := flags.GGUFDestination(client, layout, args[1]); err != nil {
			return err
		}
		if client.Given {
			o.Client = client.Value.Name
		} else if layout.Value != nil {
			o.Convention = layout.Value.Name
		}
		o.Scheme = scheme.Value
		if o.Calibration, err = statistics.Read(); err != nil {
			return err
		}
		if text.file != "" {
			o.Method, err = statistics.MethodOf(layout.Value)
		} else {
			o.Method, o.Statistics, err = statistics.Statistics()
		}
		if err != nil {
			return err
		}
		source, err := input.OpenFor(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		defer source.Close()
		if text.file != "" {
			if o.Statistics, err = text.collect(cmd, args[0], args[1], source, o, f); err != nil {
				return err
			}
			if *f.dryRun {
				o.Method = calibration.Nearest // the plan has the same tensors
			}
		}
		if o.Statistics != nil {
			defer o.Statistics.Close()
		}
		if *activations != "" {
			if o.Calibration != nil && (len(o.Calibration.Input) > 0 || o.Calibration.ConstantInputs) {
				return show.Misuse("--activations and --calibration both set scales of activations: omit one")
			}
			if o.Calibration, err = calibrated(cmd, args[0], *activations, source, o, f); err != nil {
				return err
			}
		}
		plan, err := convert.PlanQuantize(cmd.Context(), source, o)
		if err != nil {
			return err
		}
		if note := otherSource(p, source, plan); note != "" {
			plan.Notes = append(plan.Notes, note)
		}
		if err := text.admit(plan); err != nil {
			return err
		}
		return text.finish(f.run(cmd, "quantizing", conversion.Quantized(args[0], args[1], plan, o.Quantizer, p.Name)))
	})
	return cmd
}

// otherSource returns a note if a profile reproduces its library for BF16 sources only, and weights of another
// dtype are quantized; "" otherwise.
func otherSource(p profile.Profile, source *hf.Checkpoint, plan *convert.Plan) string {
	if !p.OfBF16 {
		return ""
	}
	n, dtype := 0, ""
	for _, d := range plan.Decisions() {
		if t, ok := source.Lookup(d.Name); ok && d.Action == convert.Quantize && t.Dtype != safetensors.BF16 {
			n++
			dtype = t.Dtype.String()
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d weights are %s: profile %s has the bits of its library for BF16 sources only, because the library computes in "+
		"the dtype of the source", n, dtype, p.Name)
}

// chosenProfile returns the profile of the flags: the named one, or that of the convention.
func chosenProfile(named *flags.Choice[profile.Profile], f quant.Format, c *checkpoint.Convention) (profile.Profile, error) {
	switch {
	case named.Given:
		return named.Value, nil
	case c != nil:
		return c.Profile(f)
	}
	return profile.For(f), nil
}

// quantizer returns the quantizer of the flags.
func quantizer(p profile.Profile, f quant.Format, rule *flags.Choice[quant.ScaleRule], search *flags.Choice[quant.Search],
	powerOfTwo bool) (quant.Quantizer, error) {
	q, err := flags.Quantizer(p, f, rule)
	if err != nil {
		return q, err
	}
	if powerOfTwo && f.Scale != format.F32 {
		return q, fmt.Errorf("--power-of-two-scales: %s has no FP32 scales; omit the flag", f)
	}
	q.PowerOfTwo = powerOfTwo
	q = flags.Searching(q, search.Value)
	return q, q.Validate()
}
