package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ggufplan"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

const quantizeLong = `Quantize the weights of a checkpoint, and print the error of each.

` + input.Help + `

DST is created atomically when the run completes, in a directory that is created
if it is missing. To resume an interrupted run, repeat the command with
--resume. Several machines share the work with --shard I/N; merge joins their
parts.

--text FILE chooses codes by the inputs of each layer while the model reads the
text. In a .jsonl file each line is a conversation ({"messages": [...]}), which
the model's chat template renders. This loses least, and takes minutes. With
--distill N, the scales are then trained until the logits are closer to the
model's, for models like Llama that fit in memory twice. A few dozen steps gain
with --distill-norms. Without, NVFP4 needs a hundred, which train block scales
too; scales of MXFP4 and MXFP8 are powers of two, which do not move. Statistics
that calibrate has made, in --calibration FILE, save the first pass.

--for NAME stores DST as that client loads it without options (microscale
formats --clients prints the table). Weights that the client cannot read stay
unquantized; if these are most of the model, nothing is written. Without it,
directories and GGUF files are stored as compressed-tensors (vLLM, SGLang,
transformers) if it has the format, and other files in Microscale's own
convention (plain). --convention and --scheme choose directly.

Two-dimensional weights and the experts of known families are quantized. Norms,
embeddings, the output head, routers and vision towers are not; --include
changes that. --rule gives weights another format than --format: the first rule
that matches counts, and REGEXP=keep leaves weights as they are. Auxiliary files
are copied unchanged. A GGUF file becomes another one if DST ends in .gguf, with
its metadata and tokenizer, whatever its architecture; else a directory with its
configuration and tokenizer, or one file of weights if DST ends in .safetensors.

--budget BITS divides bits among weights by the divergence that each format
costs, as measured on --text, and keeps one format for all unless the mixture is
better by a paired 95 % interval.

Before it writes a scheme with 4-bit activations, it prints the divergence that
these cost beside that of weights alone, on up to 2,048 tokens of the text.`

const quantizeExample = `  microscale quantize sample: out --format mxfp8
  microscale quantize Llama-3.2-1B Llama-3.2-1B-NVFP4 --format nvfp4 --for vllm
  microscale quantize model.safetensors small.safetensors --format mxfp6-e2m3
  microscale quantize SRC DST --format nvfp4 --scale-search
  microscale quantize SRC DST --format nvfp4 --activations book.txt
  microscale quantize SRC DST --format nvfp4 --text book.txt --resume
  microscale quantize SRC DST --budget 5 --formats nvfp4,mxfp8 --text book.txt
  microscale quantize SRC DST --format nvfp4 --text book.txt --distill 200
  microscale quantize model.gguf out.gguf --format nvfp4
  microscale quantize model.gguf out.gguf --plan q4_k_m \
    --calibration imatrix.gguf
  microscale quantize model.gguf DST --format mxfp4 --requantize
  microscale quantize SRC DST --format mxfp4 --exclude 'layers\.(0|31)\.'
  microscale quantize SRC DST --format nvfp4 --rule 'self_attn=fp8-row' \
    --rule 'layers\.(0|31)\.=keep'`

// formatsToWrite returns the block formats, and those of GGUF files beside them.
func formatsToWrite() []quant.Format {
	formats := quant.Formats()
	for _, f := range checkpoint.GGUF().Formats() {
		if !slices.ContainsFunc(formats, func(g quant.Format) bool { return g.Name == f.Name }) {
			formats = append(formats, f)
		}
	}
	return formats
}

// lookupFormat is checkpoint.LookupFormat, with other errors for mixtures and schemes.
func lookupFormat(name string) (quant.Format, error) {
	f, err := checkpoint.LookupFormat(name)
	if err != nil && ggufplan.Known(name) {
		return f, fmt.Errorf("%s is a mixture of formats: use --plan %s", name, strings.ToLower(name))
	}
	if formats := formatsOfScheme(name); err != nil && len(formats) > 0 {
		return f, fmt.Errorf("%s is a scheme: use --scheme %[1]s with --format %s", name, strings.Join(formats, " or "))
	}
	return f, err
}

// formatsOfScheme returns the names of the formats that a convention stores in a scheme.
func formatsOfScheme(name string) (formats []string) {
	for _, f := range quant.Formats() {
		if slices.ContainsFunc(checkpoint.Conventions(), func(c *checkpoint.Convention) bool { return slices.Contains(c.Schemes(f), name) }) {
			formats = append(formats, f.Name)
		}
	}
	return formats
}

func quantizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "quantize SRC DST --format NAME",
		Short:   "Quantize a checkpoint to a block-scaled format",
		Long:    quantizeLong,
		Example: quantizeExample,
		Args:    flags.SourceAndDestination,
	}
	block := flags.AddChoice(cmd, "format", "format `NAME`: a block format (microscale formats lists them), or a type of GGUF files: "+
		"q4_0 … q5_1, q2_k … q6_k", "", flags.Names(formatsToWrite()), lookupFormat)
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
	distill := addDistillation(cmd)
	var o convert.QuantizeOptions
	cmd.Flags().Var((*flags.Rules)(&o.Rules), "rule", "quantize weights whose names match to another format than --format "+
		"(REGEXP=FORMAT, REGEXP=FORMAT:SCHEME), or keep them (REGEXP=keep); repeated, the first that matches counts")
	planFile := cmd.Flags().String("plan", "", "read the format and further rules from `FILE` (TOML, as --plan-out writes it), or make those "+
		"of llama-quantize's mixture of that name for a GGUF file: "+strings.Join(ggufplan.Names(), ", ")+
		"; --format replaces the format of a file, not its rules")
	planOut := cmd.Flags().String("plan-out", "", "with --dry-run or --budget: write the plan to `FILE`, as rules to edit")
	bits := addBudget(cmd)
	cmd.Flags().Var((*flags.Patterns)(&o.Include), "include", "also quantize weights whose names match, such as embeddings")
	cmd.Flags().Var((*flags.Patterns)(&o.Exclude), "exclude", "do not quantize weights whose names match")
	cmd.Flags().BoolVar(&o.Requantize, "requantize", false, "quantize the decoded values of a quantized SRC; weights that rules leave "+
		"keep their codes")
	cmd.Flags().BoolVar(&o.KeepF32, "keep-f32", false, "leave the unquantized weights of an F32 model in F32; by default they are rounded "+
		"to BF16, to which transformers decodes codes")
	f := addRunFlags(cmd)
	f.split = flags.AddSplit(cmd)
	flags.Exclusive(cmd, "activations", "shard") // workers need one file of amaxes, or of statistics
	flags.Exclusive(cmd, "text", "shard")
	bits.exclude(cmd)
	cmd.Flags().BoolVar(&f.options.AllowNonFinite, "allow-nonfinite", false, "quantize weights that hold NaN or Inf")
	flags.Essential(cmd, "format", "rule", "for", "text", "activations", "include", "dry-run", "resume", "force", "json")
	cmd.RunE = flags.Remedied(f.staged(func(cmd *cobra.Command, args []string) (err error) {
		if *planOut != "" && !*f.dryRun && !bits.given() {
			return show.Misuse("--plan-out writes the plan of --dry-run or --budget: add one, or omit --plan-out")
		}
		if *planOut != "" {
			if err := evaluation.CheckNew("the plan", *planOut); err != nil {
				return err
			}
		}
		if err := distill.takeText(cmd, text, statistics); err != nil {
			return err
		}
		if err := bits.check(text); err != nil {
			return err
		}
		var source *hf.Checkpoint // opened once
		open := func() (_ *hf.Checkpoint, err error) {
			if source == nil {
				source, err = input.OpenFor(cmd.Context(), args[0], args[1])
			}
			return source, err
		}
		defer func() {
			if source != nil {
				source.Close()
			}
		}()
		if *planFile != "" {
			if err := readPlan(*planFile, open, text.file != "" || statistics.HasStatistics(), block, &o); err != nil {
				return err
			}
		}
		if block.Given {
			o.Quantizer.Format = block.Value
		}
		formats := bits.formats(o.Formats())
		if len(formats) == 0 && len(o.Rules) > 0 {
			return show.Misuse("every rule keeps weights as they are: name a block format for the others with --format, or one in a rule")
		}
		if len(formats) == 0 {
			return show.Misuse("--format is missing: name a block format (microscale formats lists them), or give --rule or --plan")
		}
		if err := client.Choose(formats[0], layout, scheme); err != nil {
			return err
		}
		profiles := make([]profile.Profile, len(formats))
		for i, f := range formats {
			if profiles[i], err = chosenProfile(behavior, f, layout.Value); err != nil {
				return err
			}
		}
		b := behaviorFlags{rule: rule, search: search, powerOfTwo: *powerOfTwo}
		quantizers, err := b.quantizers(formats, profiles)
		if err != nil {
			return show.Misuse("%v", err)
		}
		setQuantizers(&o, block, quantizers)
		if err := flags.GGUFDestination(client, layout, f.split, args[1]); err != nil {
			return err
		}
		if client.Given {
			o.Client = client.Value.Name
		} else if layout.Value != nil {
			o.Convention = layout.Value.Name
		}
		o.Scheme = scheme.Value
		statistics.Settle(layout.Value)
		if o.Calibration, err = statistics.Read(); err != nil {
			return err
		}
		if text.file != "" {
			o.Method, err = statistics.MethodOf(layout.Value, bits.given())
		} else {
			o.Method, o.Statistics, err = statistics.Statistics()
		}
		if err != nil {
			return err
		}
		if err := text.check(o.Method, formats, search.Value, bits.given()); err != nil {
			return err
		}
		if text.file != "" {
			if err := text.join(cmd); err != nil {
				return err
			}
			if !text.ranks.First() {
				return text.assist(cmd, args[0], f)
			}
			defer func() { err = text.endRanks(err) }()
		}
		if _, err := open(); err != nil {
			return err
		}
		if err := distill.check(cmd, text, source, layout.Value, args, f); err != nil {
			return err
		}
		var choice *budgetChoice
		if bits.given() {
			if choice, err = bits.plan(cmd.Context(), source, o, quantizers); err != nil {
				return err
			}
			o = choice.options
			if err := choice.checkText(cmd, args[0], args[1], text, f); err != nil {
				return err
			}
		}
		defer func() { text.lock.release() }()
		if text.file == "" && distill.Steps > 0 && !*f.dryRun {
			if text.lock, err = claim(args[1]); err != nil {
				return err
			}
		}
		if text.file != "" {
			if err := text.collect(cmd, args[0], args[1], source, &o, f, bits.given(), distill); err != nil {
				return err
			}
			if *f.dryRun && !bits.given() {
				o.Method = calibration.Nearest // the plan has the same tensors
			}
		}
		if o.Statistics != nil {
			defer o.Statistics.Close()
		}
		if choice != nil {
			if o, err = choice.measure(cmd, args[0], args[1], text, o, f); err != nil {
				return text.finish(cmd.ErrOrStderr(), *f.dryRun, err)
			}
		}
		if *activations != "" {
			if o.Calibration != nil && (len(o.Calibration.Input) > 0 || o.Calibration.ConstantInputs) {
				return show.Misuse("--activations and --calibration both set scales of activations: omit one")
			}
			if o.Calibration, err = calibrated(cmd, args[0], *activations, source, o, f); err != nil {
				return err
			}
		}
		if distill.Steps > 0 && !*f.dryRun {
			o.Distilled, f.distillation = distill.String(), distill
		}
		plan, err := convert.PlanQuantize(cmd.Context(), source, o)
		if err == nil {
			err = distill.checkFormats(plan)
		}
		if err != nil {
			return err
		}
		if statistics.OnlyAmaxes() {
			plan.Notes = append(plan.Notes, "of the statistics of --calibration only the amaxes of activations are used, and weights are rounded "+
				"to nearest: add --method gptq or search to choose codes and scales by them")
		}
		for _, p := range distinct(profiles) {
			if note := otherSource(p, source, plan); note != "" {
				plan.Notes = append(plan.Notes, note)
			}
		}
		if err := text.admit(cmd.ErrOrStderr(), plan, int(*f.threads)); err != nil {
			return err
		}
		result := conversion.Quantized(args[0], args[1], plan, strings.Join(flags.Names(distinct(profiles)), ", "), search.Value)
		if choice != nil {
			result.Budget = choice.result
		}
		read := text.file
		if read == "" && !calibration.IsFile(*activations) {
			read = *activations
		}
		if result.SchemeCost, err = schemeCost(cmd, args, read, text, plan, o, f); err != nil {
			return err
		}
		err = f.run(cmd, "quantizing", result)
		if err == nil && *planOut != "" { // last, so that an interrupted run can be repeated with the same name
			err = plan.WritePlanFile(*planOut, o.Include)
		}
		if err = text.finish(cmd.ErrOrStderr(), *f.dryRun, err); err == nil && !*f.dryRun {
			err = reportTraining(cmd.ErrOrStderr(), args[1])
		}
		return err
	}))
	return cmd
}

// otherSource returns a note if a profile reproduces its library for BF16 sources only, and weights of another
// dtype are quantized; "" otherwise.
func otherSource(p profile.Profile, source *hf.Checkpoint, plan *convert.Plan) string {
	if !p.OfBF16 {
		return ""
	}
	n, dtype := 0, ""
	for d := range plan.Decisions() {
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

// readPlan adds the rules of a plan file to the options, after those of flags, and its format unless --format is given. importance: weights
// are quantized by statistics of their inputs.
func readPlan(path string, open func() (*hf.Checkpoint, error), importance bool, block *flags.Choice[quant.Format],
	o *convert.QuantizeOptions) error {
	file, err := ggufplan.Read(path, open, importance)
	if err != nil {
		return err
	}
	if file.FileType != 0 && block.Given {
		return show.Misuse("--format and the mixture --plan %s exclude each other: omit --format, or give --rule", path)
	}
	rules, err := file.Rules()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	include, err := file.Includes()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(o.Rules) > 0 {
		for i := range rules {
			rules[i].Default = true
		}
	}
	o.FileType, o.Rules, o.Include = file.FileType, append(o.Rules, rules...), append(o.Include, include...)
	if file.Format == "" || block.Given {
		return nil
	}
	if _, scheme, named := strings.Cut(file.Format, ":"); named {
		return fmt.Errorf("%s: format: a block format without a scheme is wanted: give --scheme %s, or name it in a rule", path,
			limits.Text(scheme))
	}
	if err := block.Set(file.Format); err != nil {
		return fmt.Errorf("%s: format: %w", path, err)
	}
	return nil
}

// distinct returns profiles without duplicates.
func distinct(profiles []profile.Profile) (all []profile.Profile) {
	for _, p := range profiles {
		if !slices.ContainsFunc(all, func(q profile.Profile) bool { return q.Name == p.Name }) {
			all = append(all, p)
		}
	}
	return all
}

// behaviorFlags are how weights are quantized, in any format.
type behaviorFlags struct {
	profile    profile.Profile
	rule       *flags.Choice[quant.ScaleRule]
	search     *flags.Choice[quant.Search]
	powerOfTwo bool
}

// quantizers returns the quantizers of formats by name. Of several formats, a flag counts for those that it can count for; one that
// counts for none is an error.
func (b behaviorFlags) quantizers(formats []quant.Format, profiles []profile.Profile) (all map[string]quant.Quantizer, err error) {
	all = map[string]quant.Quantizer{}
	used := behaviorFlags{rule: &flags.Choice[quant.ScaleRule]{}, search: &flags.Choice[quant.Search]{}}
	for i, f := range formats {
		b.profile = profiles[i]
		one := b
		if len(formats) > 1 {
			one = b.of(f)
		}
		if all[f.Name], err = one.quantizer(f); err != nil {
			return nil, err
		}
		used.rule.Given = used.rule.Given || one.rule.Given
		used.search.Given = used.search.Given || one.search.Given
		used.powerOfTwo = used.powerOfTwo || one.powerOfTwo
	}
	switch {
	case b.rule.Given && !used.rule.Given:
		return nil, errors.New("--scale-rule: no format has E8M0 scales; omit the flag")
	case b.search.Given && !used.search.Given:
		return nil, errors.New("--scale-search: no format supports it; omit the flag")
	case b.powerOfTwo && !used.powerOfTwo:
		return nil, errors.New("--power-of-two-scales: no format has FP32 scales; omit the flag")
	}
	return all, nil
}

// setQuantizers sets the quantizers of the options, whose rules have formats alone.
func setQuantizers(o *convert.QuantizeOptions, block *flags.Choice[quant.Format], quantizers map[string]quant.Quantizer) {
	if block.Given {
		o.Quantizer = quantizers[block.Value.Name]
	}
	for i, r := range o.Rules {
		if !r.Keeps() {
			o.Rules[i].Quantizer = quantizers[r.Quantizer.Format.Name]
		}
	}
}

// of returns the flags that can count for a format.
func (b behaviorFlags) of(f quant.Format) behaviorFlags {
	if f.Scale != format.E8M0 {
		b.rule = &flags.Choice[quant.ScaleRule]{}
	}
	b.powerOfTwo = b.powerOfTwo && f.Scale == format.F32
	if q, err := b.quantizer(f); err != nil || q.Validate() != nil {
		b.search = &flags.Choice[quant.Search]{}
	}
	return b
}

// quantizer returns the quantizer of a format.
func (b behaviorFlags) quantizer(f quant.Format) (quant.Quantizer, error) {
	q, err := flags.Quantizer(b.profile, f, b.rule)
	if err != nil {
		return q, err
	}
	if b.powerOfTwo && f.Scale != format.F32 {
		return q, fmt.Errorf("--power-of-two-scales: %s has no FP32 scales; omit the flag", f)
	}
	q.PowerOfTwo = b.powerOfTwo
	q = flags.Searching(q, b.search.Value)
	return q, q.Validate()
}
