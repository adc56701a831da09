package playground

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/identify"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
)

// maxWeights bounds the list of weights in an answer: the page suggests these.
const maxWeights = 1000

// readModel reads the headers of a checkpoint. The caller closes its source.
func readModel(ctx context.Context, path string, open func(string) (*hf.Checkpoint, error)) (*checkpoint.Model, error) {
	source, err := open(path)
	if err != nil {
		return nil, err
	}
	m, err := checkpoint.ReadContext(ctx, source)
	if err != nil {
		source.Close()
	}
	return m, err
}

// inspectCheckpoint answers as inspect.
func inspectCheckpoint(ctx context.Context, r *Request, a *Answer) error {
	m, err := readModel(ctx, r.Source, convert.Open)
	if err != nil {
		return err
	}
	defer m.Source.Close()
	var text bytes.Buffer
	if err := conversion.PrintInspection(&text, r.Source, m, false, false); err != nil {
		return err
	}
	a.Text, a.Line = text.String(), line("inspect", r.Source)
	for _, w := range m.Weights {
		if w.Quantized() && len(a.Weights) < maxWeights {
			a.Weights = append(a.Weights, w.Name)
		}
	}
	return nil
}

// lintCheckpoint answers as lint.
func lintCheckpoint(ctx context.Context, r *Request, a *Answer) error {
	m, err := readModel(ctx, r.Source, func(path string) (*hf.Checkpoint, error) { return lint.OpenBroken(path, convert.Open) })
	if err != nil {
		return err
	}
	defer m.Source.Close()
	report, err := lint.Run(ctx, m, lint.Options{})
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := lint.Print(&text, r.Source, report, false); err != nil {
		return err
	}
	a.Text, a.Line = text.String(), line("lint", r.Source)
	return nil
}

// withOriginal calls f with the checkpoint and its original, which is nil if none is given.
func withOriginal(ctx context.Context, r *Request, f func(m, original *checkpoint.Model) error) error {
	m, err := readModel(ctx, r.Source, convert.Open)
	if err != nil {
		return err
	}
	defer m.Source.Close()
	if r.Original == "" {
		return f(m, nil)
	}
	original, err := readModel(ctx, r.Original, convert.Open)
	if err != nil {
		return err
	}
	defer original.Source.Close()
	return f(m, original)
}

// source returns args with the flag of the original, if one is given.
func (r *Request) source(args ...string) []string {
	if r.Original != "" {
		args = append(args, "--source", r.Original)
	}
	return args
}

// maxBlock bounds the values of a block that is shown, each a row of text: those of 128×128 blocks.
const maxBlock = 1 << 14

// explainBlock answers as explain --tensor.
func explainBlock(ctx context.Context, r *Request, a *Answer) error {
	number, err := strconv.ParseUint(r.Block, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not the number of a block: they are numbered along rows, from 0", r.Block)
	}
	return withOriginal(ctx, r, func(m, original *checkpoint.Model) error {
		if w, ok := m.Lookup(r.Weight); ok && w.Quantized() {
			rows, cols := w.Matrix()
			high, wide := cmp.Or(w.Format.Block.Rows, rows), cmp.Or(w.Format.Block.Cols, cols)
			if high > maxBlock/wide {
				return fmt.Errorf("%s has blocks of %d×%d: the page shows those of up to %d values", r.Weight, high, wide, maxBlock)
			}
		}
		b, err := identify.BlockOf(ctx, m, original, r.Weight, int(number))
		if err != nil {
			return fmt.Errorf("%s: %w", r.Source, err)
		}
		var text, document bytes.Buffer
		if err := b.Print(&text, false); err != nil {
			return err
		}
		if err := b.Print(&document, true); err != nil {
			return err
		}
		a.Text, a.Explanation = text.String(), document.Bytes()
		a.Line = line(r.source("explain", "--tensor", r.Weight, "--block", r.Block, r.Source)...)
		return nil
	})
}

// identifyWriters answers as identify.
func identifyWriters(ctx context.Context, r *Request, a *Answer) error {
	return withOriginal(ctx, r, func(m, original *checkpoint.Model) error {
		return identifyAll(ctx, r, a, m, original)
	})
}

func identifyAll(ctx context.Context, r *Request, a *Answer, m, original *checkpoint.Model) error {
	if err := identify.CheckQuantized(m, r.Source); err != nil {
		return err
	}
	weights, err := identify.Identify(ctx, m, original)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := identify.Print(&text, r.Source, r.Original, identify.Marks(m), weights, false, false); err != nil {
		return err
	}
	a.Text, a.Line = text.String(), line(r.source("identify", r.Source)...)
	return nil
}
