package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// A calibrationText is --text, by whose statistics a method chooses codes, and --memory.
type calibrationText struct {
	file   string
	follow bool
	fit    bool // codes to quantized inputs
	memory *flags.Size
	kept   []string // files for the next run: of statistics, and of what a budget measured
	lock   *runLock // nil: not locked

	library *string
	ranks   *ranks.Job // that divide the text
	called  bool       // the other ranks collect statistics
}

func addText(cmd *cobra.Command) *calibrationText {
	t := &calibrationText{memory: flags.AddMemory(cmd), library: ranks.AddLibrary(cmd)}
	cmd.Flags().StringVar(&t.file, "text", "", "choose codes by the statistics of the text of `FILE`, or of the files of a directory "+
		"(.jsonl: conversations)")
	cmd.Flags().BoolVar(&t.follow, "sequential", false, "with --text and --method gptq: fit each layer to the outputs of the original, at "+
		"the inputs that the quantized layers before it give; needs a text of many more tokens than columns")
	cmd.Flags().BoolVar(&t.fit, "fit-activations", false, "with --text, --method gptq and a --scheme of 4-bit activations: choose codes that "+
		"make up for the errors of activations, too; needs a text of many more tokens than columns")
	return t
}

// collect sets the statistics of a model over the text, from a file beside dst if an interrupted run has left it, or only their key if
// dst exists, which --resume compares with what the plan would write. What fails later without them is an error before the text is read.
// With --dry-run it is not read. If the plan depends on the statistics, they are always set, but for method nearest. An error of
// check, which takes the plan, comes before the text is read, too.
func (t *calibrationText) collect(cmd *cobra.Command, model, dst string, source *hf.Checkpoint, options *convert.QuantizeOptions,
	f *runFlags, depends bool, distill *distillation) (err error) {
	o := *options
	if !slices.ContainsFunc(o.Formats(), o.Method.Supports) {
		_, err := o.Method.Quantizer(o.Quantizers()[0])
		return fmt.Errorf("%w; without --text it is rounded to nearest", err)
	}
	method := o.Method
	named := o.Scheme != "" || slices.ContainsFunc(o.Rules, func(r convert.Rule) bool { return r.Scheme != "" })
	if o.Method = calibration.Nearest; named && o.Calibration == nil {
		o.Calibration = &convert.Calibration{ConstantInputs: true} // if the scheme stores scales of activations
	}
	plan, err := convert.PlanQuantize(cmd.Context(), source, o)
	if err != nil && named {
		o.Calibration = nil
		plan, err = convert.PlanQuantize(cmd.Context(), source, o)
	}
	if err == nil {
		err = distill.checkFormats(plan)
	}
	if err != nil {
		return err
	}
	f.spare(cmd, plan)
	exists := false
	admit := func() error {
		err := plan.Admit(dst, f.options.Force)
		if exists = f.options.Resume && errors.Is(err, fs.ErrExist); err != nil && !exists {
			return err
		}
		complete, err := f.fits(plan)
		exists = exists || complete
		return err
	}
	if err := admit(); err != nil {
		return err
	}
	if *f.dryRun && !depends {
		return evaluation.CheckText(t.file)
	}
	if t.lock, err = claim(dst); err != nil {
		return err
	}
	if err := admit(); err != nil { // another run may have finished meanwhile
		return err
	}
	if method == calibration.Nearest {
		return nil
	}
	c := evaluation.Calibration{Out: dst + statisticsSuffix + statisticsEnd, Hessian: method == calibration.Solve}
	if t.follow {
		if c.Follow, err = following(plan, method, o); err != nil {
			return err
		}
	}
	if t.fit {
		if c.Activations = evaluation.LowInputs(plan); len(c.Activations) == 0 {
			return show.Misuse("--fit-activations has an effect on weights whose activations have four bits alone: choose a scheme that quantizes " +
				"these, such as --scheme NVFP4, or omit it")
		}
	}
	for d := range plan.Decisions() {
		if strings.HasSuffix(d.Name, ".weight") && len(d.Shape) == 2 && d.Action == convert.Quantize &&
			slices.ContainsFunc(o.Formats(), func(q quant.Format) bool { return q.Name == d.Format && q.Scaled() && method.Supports(q) }) {
			c.Needs = append(c.Needs, d.Module)
		}
	}
	if err := t.configure(cmd, &c, model, f); err != nil {
		return err
	}
	if exists && !named && !depends { // a scheme may store scales of activations
		options.StatisticsKey, err = c.Key(cmd.Context())
		return err
	}
	_, missing := os.Lstat(measured(dst))
	c.Keep = f.options.Resume || missing == nil || distill.Steps > 0 && ofTraining(dst) != nil
	if err := t.callRanks(c); err != nil {
		return err
	}
	options.Statistics, options.StatisticsKey, err = c.Statistics(cmd.Context())
	err = t.ranks.Settle(err)
	if errors.Is(err, evaluation.ErrOtherRun) {
		files := []string{c.Out}
		if missing == nil {
			files = append(files, measured(dst))
		}
		return otherRun(dst, err, files...)
	}
	t.kept = append(t.kept, c.Out)
	return err
}

// following returns what quantizes the weights of a plan while statistics follow it.
func following(plan *convert.Plan, method calibration.Method, o convert.QuantizeOptions) (*evaluation.Following, error) {
	f := &evaluation.Following{Formats: map[string]string{}, Quantizers: map[string]quant.Quantizer{}}
	for _, q := range o.Quantizers() {
		if method.Supports(q.Format) {
			var err error
			if q, err = method.Quantizer(q); err != nil {
				return nil, err
			}
		}
		f.Quantizers[q.Format.Name] = q
	}
	for d := range plan.Decisions() {
		if _, ok := f.Quantizers[d.Format]; ok && d.Action == convert.Quantize {
			f.Formats[d.Name] = d.Format
		}
	}
	return f, nil
}

// check returns an error for flags that have no effect on a quantization to formats, or exclude each other.
func (t *calibrationText) check(method calibration.Method, formats []quant.Format, search quant.Search, budget bool) error {
	others := func(f quant.Format) bool { return !method.Supports(f) }
	switch {
	case search == quant.LeastSquares && method != calibration.Nearest && !slices.ContainsFunc(formats, others):
		return show.Misuse("--scale-search has no effect with method %s, which searches scales by the statistics of the text: omit it", method)
	case t.follow && (t.file == "" || method != calibration.Solve):
		return show.Misuse("--sequential has an effect with --text and --method %s alone: omit it", calibration.Solve)
	case t.fit && (t.file == "" || method != calibration.Solve || budget):
		return show.Misuse("--fit-activations has an effect with --text and --method %s alone, and not with --budget: omit it", calibration.Solve)
	case t.follow && budget:
		return show.Misuse("--sequential needs the formats of weights before the text is read, which --budget finds later: omit one")
	case *t.memory > 0 && method == calibration.Nearest:
		return show.Misuse("--memory has no effect without --text or --method: omit it, conversions take the memory of a few tiles")
	}
	return nil
}

// admit prints what the method of a plan takes, or returns an error if that is more than --memory.
func (t *calibrationText) admit(stderr io.Writer, plan *convert.Plan, threads int) error {
	need := plan.MethodBytes()
	if need > 0 {
		seconds, err := plan.MethodSeconds(threads)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "predicted: method %s takes at most %s of memory, about %s\n", plan.Method(), show.BytesText(float64(need)),
			show.DurationText(seconds))
	}
	if *t.memory > 0 && need > int64(*t.memory) {
		return fmt.Errorf("%w: method %s takes %s of memory by the forecast, more than the %s allowed: use --method %s", decoder.ErrMemory,
			plan.Method(),
			show.BytesText(float64(need)), show.BytesText(float64(*t.memory)), calibration.Search)
	}
	return nil
}

// finish removes the files for the next run when they are of no more use, and says what is kept after an error, or after a dry run.
func (t *calibrationText) finish(stderr io.Writer, dryRun bool, err error) error {
	var kept []string
	for _, path := range t.kept {
		if err == nil && !dryRun {
			err = os.Remove(path)
		} else if _, missing := os.Stat(path); missing == nil {
			kept = append(kept, show.Printable(path))
		}
	}
	switch text := "what was measured is kept for the next run in " + strings.Join(kept, " and "); {
	case kept == nil:
		return err
	case err != nil:
		return fmt.Errorf("%w; %s", err, text)
	default:
		_, err = fmt.Fprintln(stderr, text)
		return err
	}
}

// calibrated returns the amaxes of a model's activations over a text: of inputs, and with --kv-cache of keys and
// values; or those of inputs in statistics. A scheme that stores no scales is an error before the text is read. With --dry-run it
// is not read: the plan with scales of 1 is the same.
func calibrated(cmd *cobra.Command, model, text string, source *hf.Checkpoint, o convert.QuantizeOptions,
	f *runFlags) (*convert.Calibration, error) {
	c := evaluation.Calibration{Cache: o.Calibration != nil}
	o.Calibration = &convert.Calibration{ConstantInputs: true, ConstantCache: c.Cache}
	if _, err := convert.PlanQuantize(cmd.Context(), source, o); err != nil {
		return nil, err
	}
	if calibration.IsFile(text) {
		read, err := convert.ReadCalibration(text)
		if err == nil {
			read.ConstantCache = c.Cache
		}
		return read, err
	}
	if *f.dryRun {
		return o.Calibration, evaluation.CheckText(text)
	}
	c.Text, c.Threads = text, int(*f.threads)
	if err := calibrating(cmd, &c, model); err != nil {
		return nil, err
	}
	amaxes, _, err := c.Compute(cmd.Context())
	if errors.Is(err, decoder.ErrMemory) {
		return nil, fmt.Errorf("%w; calibrate --stream keeps one layer in memory, and --calibration takes its file", err)
	}
	return amaxes, err
}
