package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/train"
)

// A distillation is --distill and its flags. Until DST is complete, its files are beside it:
//
//	DST.microscale-undistilled     the result of the method
//	DST.microscale-rescaled        a copy with the trained scales, while it is written
//	DST.microscale-distilled       the state of the training
type distillation struct {
	evaluation.Distillation
}

const (
	undistilledSuffix = ".microscale-undistilled"
	rescaledSuffix    = ".microscale-rescaled"
	distilledSuffix   = ".microscale-distilled"
)

func addDistillation(cmd *cobra.Command) *distillation {
	d := &distillation{}
	cmd.Flags().IntVar(&d.Steps, "distill", 0, "with --text: then train the scales for `N` steps, of a window of the text each, until "+
		fmt.Sprintf("the logits are closer to the model's; codes stay, and with fewer than %d steps the scales of blocks, too", train.BlockSteps))
	cmd.Flags().BoolVar(&d.Norms, "distill-norms", false, "with --distill: also train the weights of norms")
	cmd.Flags().Uint64Var(&d.Seed, "seed", 0, "with --distill: seed `N` of the order of the windows")
	return d
}

// takeText takes the text of --text. If --calibration names statistics, it is for the distillation alone, and otherwise --calibration an
// error.
func (d *distillation) takeText(cmd *cobra.Command, text *calibrationText, statistics *flags.CalibrationFlag) error {
	d.Text = text.file
	switch both := cmd.Flags().Changed("text") && cmd.Flags().Changed("calibration"); {
	case both && d.Steps > 0 && statistics.HasStatistics():
		text.file = ""
	case both && d.Steps > 0:
		return show.Misuse("--calibration %s has no statistics, which --text would give: omit one",
			show.Printable(cmd.Flag("calibration").Value.String()))
	case both:
		return show.Misuse("--text and --calibration exclude each other: omit one, or add --distill, which trains on the text")
	}
	return nil
}

// checkFormats returns an error if a plan has weights whose scales cannot be trained, those that keep the codes of the source among
// them, or none that this number of steps would change. Powers of two do not move by half a spacing.
func (d *distillation) checkFormats(plan *convert.Plan) error {
	if d.Steps == 0 {
		return nil
	}
	trained := d.Norms
	for _, s := range plan.Shares() {
		layer := nn.ScaledLinear{Name: "--distill", Weight: &quant.Tensor{Format: s.Format}}
		if err := layer.Check(); err != nil {
			return fmt.Errorf("%w; omit it, or name another format", err)
		}
		trained = trained || s.Format.Global || s.Format.Scaled() && s.Format.Scale != format.E8M0 && d.Steps >= train.BlockSteps
	}
	if !trained {
		return show.Misuse("--distill %d changes nothing here: no format has a global scale, and scales that are powers of two do not move: add "+
			"--distill-norms, or omit it", d.Steps)
	}
	return nil
}

// check completes the distillation of a model, and prints the memory that it takes. It returns an error for flags that it does not
// support and for a model that cannot be trained, before any work.
func (d *distillation) check(cmd *cobra.Command, text *calibrationText, source *hf.Checkpoint, layout *checkpoint.Convention,
	args []string, f *runFlags) (err error) {
	switch set := cmd.Flags(); {
	case d.Steps < 0, d.Steps == 0 && set.Changed("distill"):
		return show.Misuse("--distill: got %d steps, want at least one: name more, or omit it", d.Steps)
	case d.Steps == 0 && d.Norms:
		return show.Misuse("--distill-norms has no effect without --distill: omit it, or add --distill")
	case d.Steps == 0 && set.Changed("seed"):
		return show.Misuse("--seed has no effect without --distill: omit it, or add --distill")
	case d.Steps == 0:
		return nil
	case d.Text == "":
		return show.Misuse("--distill trains on a text: add --text")
	case f.options.Force:
		return show.Misuse("--distill and --force exclude each other: name a new DST")
	case layout.OneFile() || strings.HasSuffix(args[1], ".safetensors"):
		return show.Misuse("--distill writes a directory: name one, with a convention other than gguf")
	}
	flags.BoundGarbage() // of statistics that are given, nothing else does
	plan, err := decoder.ReadPlan(source)
	if err == nil {
		err = plan.Trainable()
	}
	if err != nil {
		return fmt.Errorf("--distill trains dense models like Llama: %w; omit it", err)
	}
	d.Model, d.Stderr, d.Threads, d.Memory = args[0], cmd.ErrOrStderr(), int(*f.threads), int64(*text.memory)
	if d.Method, err = windows.LookupMethod("all"); err != nil {
		return err
	}
	if err := d.Admit(plan, source); err != nil || *f.dryRun {
		return err
	}
	return d.CheckText(cmd.Context())
}

// run quantizes beside the destination of c, trains the scales, and renames a copy with them. Whatever is there of an interrupted
// run is resumed.
func (d *distillation) run(cmd *cobra.Command, c *conversion.Conversion, o convert.RunOptions, quantized func()) (err error) {
	dst := filepath.Clean(c.Destination)
	undistilled, rescaled, state := dst+undistilledSuffix, dst+rescaledSuffix, dst+distilledSuffix
	if _, err := os.Lstat(dst); err == nil { // finished, or an error
		c.Result, err = c.Plan.Run(cmd.Context(), dst, o)
		quantized()
		if err != nil {
			return err
		}
		return errors.Join(removeExisting(state), os.RemoveAll(undistilled))
	}
	o.Resume = true
	c.Result, err = c.Plan.Run(cmd.Context(), undistilled, o)
	quantized()
	if errors.Is(err, fs.ErrExist) || errors.Is(err, convert.ErrChanged) {
		// Without the cause, for which flags names --force or --resume: neither helps here.
		return fmt.Errorf("%v, or repeat the command of the interrupted run, or remove %s to start anew", err,
			show.Printable(strings.Join(ofTraining(dst), " and ")))
	} else if err != nil {
		return err
	}
	var tensors map[string][]byte
	c.Distilled, tensors, err = d.Run(cmd.Context(), undistilled, state)
	if errors.Is(err, evaluation.ErrOtherRun) {
		return otherRun(dst, err)
	} else if err != nil {
		return err
	}
	if err := os.RemoveAll(rescaled); err != nil { // of a killed run
		return err
	}
	if err := convert.Rescale(rescaled, undistilled, tensors); err != nil {
		return err
	}
	if err := durable.RenameNew(rescaled, dst); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(filepath.Dir(dst)), removeExisting(state), os.RemoveAll(undistilled))
}

// otherRun is the error of a run that would resume one to dst which differs as err says. Files of that run, with those beside dst that
// only its training leaves, are left alone.
func otherRun(dst string, err error, files ...string) error {
	files = append(files, ofTraining(dst)...)
	return fmt.Errorf("%s: %w: repeat its command to resume it, or, to start anew, remove %s", show.Printable(filepath.Clean(dst)), err,
		show.Printable(strings.Join(files, " and ")))
}

// ofTraining returns the files beside dst that an interrupted run with --distill left.
func ofTraining(dst string) (left []string) {
	dst = filepath.Clean(dst)
	for _, suffix := range []string{undistilledSuffix, undistilledSuffix + ".microscale-partial", rescaledSuffix, distilledSuffix} {
		if _, err := os.Lstat(dst + suffix); err == nil {
			left = append(left, dst+suffix)
		}
	}
	return left
}

// reportTraining prints which files a run with --distill left beside dst, which is complete without its training.
func reportTraining(w io.Writer, dst string) error {
	left := ofTraining(dst)
	if left == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "an interrupted run with --distill left %s, which nothing needs once %s is complete: remove them\n",
		show.Printable(strings.Join(left, " and ")), show.Printable(filepath.Clean(dst)))
	return err
}

// removeExisting removes a file that may not exist.
func removeExisting(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
