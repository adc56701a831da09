package assess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/evaluate"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/quant"
)

// An Evaluation reads a text with a model and, for the divergence, with its original.
type Evaluation struct {
	Model     string
	Reference string         // the original; "": none
	Formats   []quant.Format // formats to quantize the model to; the model is the original then

	Text    string // a file or a directory
	Method  evaluate.Method
	Context int // tokens of a window; 0: those of the method, or of the model if it has fewer positions

	Activations bool // quantize activations
	Layers      bool // measure the errors of layers
	Threads     int
	Stderr      io.Writer // progress

	amaxes *evaluate.Amaxes // of the model; nil: none
}

// Evaluated is the result of an Evaluation.
type Evaluated struct {
	Evaluation
	document document
	tokens   int
	windows  int
	seconds  float64
	size     decoder.Size // of the model
	result   *evaluate.Result
}

// Run reads the text.
func (e Evaluation) Run(ctx context.Context) (*Evaluated, error) {
	if e.Reference != "" && len(e.Formats) > 0 {
		return nil, errors.New("a reference and formats exclude each other: with formats, the model is the reference")
	}
	text, err := readText(e.Text)
	if err != nil {
		return nil, err
	}
	model, vocabulary, err := e.open(ctx, e.Model)
	if err != nil {
		return nil, err
	}
	r := &Evaluated{Evaluation: e, document: text}
	run := &evaluate.Run{Models: []evaluate.Stack{model}, Local: e.Layers, Amaxes: e.amaxes, Threads: e.Threads}
	if e.Reference != "" {
		original, err := e.reference(ctx, vocabulary)
		if err != nil {
			return nil, err
		}
		run.Original = original
	}
	r.size = model.Size()
	if len(e.Formats) > 0 {
		run.Original, run.Models = model, nil
		for _, f := range e.Formats {
			low, err := newFormatStack(model, f, e.Activations, true)
			if err != nil {
				return nil, err
			}
			run.Models = append(run.Models, low)
		}
	}
	if err := r.cut(run, model.Positions(), vocabulary); err != nil {
		return nil, err
	}
	return r, r.do(ctx, run)
}

// open loads a model into memory.
func (e *Evaluation) open(ctx context.Context, path string) (*stack, vocabulary, error) {
	source, err := input.Open(ctx, path)
	if err != nil {
		return nil, vocabulary{}, err
	}
	m, err := decoder.Read(ctx, source, decoder.LoadOptions{Inference: true, Activations: e.Activations})
	if err := errors.Join(err, source.Close()); err != nil {
		return nil, vocabulary{}, cli.Interrupted(err, "nothing was measured")
	}
	if stored, perToken, caches := m.ActivationScales(); e.Activations && len(e.Formats) == 0 && stored+perToken+caches == 0 {
		return nil, vocabulary{}, fmt.Errorf("quantize the activations of %s: it has no quantized weights and no KV cache scales", path)
	}
	m.Inference.Threads = e.Threads
	v, err := openVocabulary(path, m)
	return newStack(m), v, err
}

// reference loads the original, which must have the vocabulary of the model.
func (e *Evaluation) reference(ctx context.Context, v vocabulary) (*stack, error) {
	exact := *e
	exact.Activations = false
	original, u, err := exact.open(ctx, e.Reference)
	if err != nil {
		return nil, err
	}
	if err := v.check(u); err != nil {
		return nil, fmt.Errorf("compare %s with %s: their tokenizers differ: %w", e.Model, e.Reference, err)
	}
	return original, nil
}

// cut sets the windows of a run.
func (r *Evaluated) cut(run *evaluate.Run, positions int, v vocabulary) error {
	switch {
	case r.Context == 0:
		r.Context = min(r.Method.Context, positions)
	case r.Context > positions:
		return fmt.Errorf("a context of %d tokens: %s has %d positions: use a shorter context", r.Context, r.Model, positions)
	}
	tokens, err := v.encode(r.document.text, r.Method.Literal)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Text, err)
	}
	if run.Windows, err = r.Method.Windows(tokens, r.Context, v.begin()); err != nil {
		return fmt.Errorf("%s: %w", r.Text, err)
	}
	r.tokens, r.windows = len(tokens), len(run.Windows)
	return nil
}

// do runs the evaluation with a meter.
func (r *Evaluated) do(ctx context.Context, run *evaluate.Run) error {
	var meter *cli.Meter
	before := 0
	run.Progress = func(done, total int) {
		if meter == nil {
			meter = cli.NewStepMeter(r.Stderr, "evaluating", total)
		}
		meter.Add(int64(done - before))
		before = done
	}
	start := time.Now()
	result, err := run.Do(ctx)
	if meter != nil {
		meter.Close()
	}
	r.result, r.seconds = result, time.Since(start).Seconds()
	return cli.Interrupted(err, "nothing was measured")
}
