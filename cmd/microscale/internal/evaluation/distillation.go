package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/train"
)

// A Distillation trains the scales of a quantized model on a text until its logits are closer to those of the original.
type Distillation struct {
	Evaluation        // of the original, Model, on Text
	Steps      int    // windows that are read; 0: no training
	Norms      bool   // also train the weights of norms
	Seed       uint64 // of the order of the windows
}

// String describes the distillation for metadata, which are written before its gain is known.
func (d *Distillation) String() string {
	what := "scales distilled"
	if d.Norms {
		what = calibration.NormsDistilled
	}
	return fmt.Sprintf("%s in %s if that gained, seed %d", what, show.Counted(d.Steps, "step"), d.Seed)
}

// heldOutEvery is the distance between the windows that are held out, of which there are at most maxHeldOut.
const (
	heldOutEvery = 8
	maxHeldOut   = 16
)

// CheckText returns an error for a text that is too short, before any work.
func (d *Distillation) CheckText(ctx context.Context) error {
	all, err := d.readWindows(ctx)
	if err == nil {
		_, _, err = d.divide(all)
	}
	return err
}

// divide returns the windows to train on and those that are held out.
func (d *Distillation) divide(all []windows.Window) (training, held [][]int32, err error) {
	if len(all) < 2 {
		return nil, nil, fmt.Errorf("%s: the text has one window: distillation holds a part of the text out, so use a longer text", d.Text)
	}
	for i, w := range all {
		if (i%heldOutEvery == heldOutEvery-1 || len(all) < heldOutEvery && i == len(all)-1) && len(held) < maxHeldOut {
			held = append(held, w.Tokens)
		} else {
			training = append(training, w.Tokens)
		}
	}
	return training, held, nil
}

// Run trains the scales of the quantized model in the directory student, and returns the new bytes of its tensors that hold scales, by
// name. An interrupted run resumes after the file state.
func (d *Distillation) Run(ctx context.Context, student, state string) (result *train.Distilled, tensors map[string][]byte, err error) {
	all, err := d.readWindows(ctx)
	if err != nil {
		return nil, nil, err
	}
	original, _, err := d.open(ctx, d.Model, false)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, original.Close()) }()
	s, err := openStack(ctx, student, decoder.LoadOptions{Inference: true}, d.Threads, false)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	t := train.Distillation{Original: original.Model, Steps: d.Steps, Norms: d.Norms, Seed: d.Seed, Threads: d.Threads, State: state}
	if t.Windows, t.HeldOut, err = d.divide(all); err != nil {
		return nil, nil, err
	}
	if t.Student, err = s.Student(); err != nil {
		return nil, nil, err
	}
	content, err := original.content(ctx)
	if err != nil {
		return nil, nil, err
	}
	record, _, err := checksum.RecordOf(s.source.Shards()[0].File)
	if err != nil {
		return nil, nil, err
	}
	t.Key = digestOf(map[string]string{"model": content, "text or tokenizer": tokensOf(all),
		"version of this program": show.Version(), "quantized model": record.Plan, "training": d.String()})
	if _, err := t.Student.Rescaled(d.Norms); err != nil { // before the work
		return nil, nil, err
	}
	meter := newDistillationMeter(d.Stderr, &t)
	result, err = t.Run(ctx)
	meter.Close()
	if other, ok := errors.AsType[*train.OtherRunError](err); ok {
		err = otherRun(other.Key, t.Key)
	}
	if err != nil {
		return nil, nil, err
	}
	tensors, err = t.Student.Rescaled(d.Norms)
	return result, tensors, err
}

// Admit prints the memory that the training of a model takes at most, or returns an error if that is more than is allowed.
//
//	memory = program + weights of both models + 20 bytes a scale + inputs of the layers + activations of one + logits of both +
//	         head, transposed + values, products and casts of a matrix
func (d *Distillation) Admit(plan *decoder.Plan, source *hf.Checkpoint) error {
	const program, garbage, element, perScale = 64 << 20, 1.5, 4, 20
	layers, rest := plan.HeldBytes(source)
	context, hidden, mlp := min(d.Method.Context, plan.Positions), plan.Hidden, 2*plan.Layers[0].MLP.Width // gate and up are one matrix
	need := 2*float64(layers+rest) + float64(plan.Parameters())/float64(quant.NVFP4.Block.Cols)*perScale +
		float64(2*context*hidden*len(plan.Layers)) + float64(element*context*(4*hidden+3*mlp)) +
		float64(2*element*decoder.StudentRows*plan.Vocabulary) + float64(2*plan.Vocabulary*hidden) + float64(3*element*mlp*hidden)
	need = garbage * (program + need)
	fmt.Fprintf(d.Stderr, "predicted: --distill takes at most %s of memory\n", show.BytesText(need))
	if d.Memory > 0 && need > float64(d.Memory) {
		return fmt.Errorf("%w: --distill takes %s by the forecast, more than the %s allowed: omit it", decoder.ErrMemory,
			show.BytesText(need), show.BytesText(float64(d.Memory)))
	}
	return nil
}

// A distillationMeter shows the progress of a distillation, in windows.
type distillationMeter struct {
	*show.Meter
	done int
}

// costOfStep is the time of a step in that of a window that is only evaluated: both models' forward passes, against these, another
// of the student, and its backward pass of twice that.
const costOfStep = 2.5

func newDistillationMeter(w io.Writer, t *train.Distillation) *distillationMeter {
	m := &distillationMeter{Meter: show.NewStepMeter(w, "distilling", 2*len(t.HeldOut)+int(costOfStep*float64(t.Steps)))}
	t.Progress = func(p train.Distilled) {
		done := len(p.Before) + len(p.After) + int(costOfStep*float64(p.Steps))
		m.Add(int64(done - m.done))
		m.done = done
		if n := len(p.Losses); n > 0 {
			m.Note(fmt.Sprintf("step %d, KL %.4f", p.Steps, p.Losses[n-1]))
		}
		if len(p.Before) == 1 && p.Steps == 0 {
			all := p.Seconds * (float64(2*len(t.HeldOut)) + costOfStep*float64(t.Steps))
			m.Logf("predicted: about %s for %s", show.DurationText(all), show.Counted(t.Steps, "step"))
		}
	}
	return m
}
