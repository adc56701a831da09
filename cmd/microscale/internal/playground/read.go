package playground

import (
	"bytes"
	"context"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/identify"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
)

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

// identifyWriters answers as identify.
func identifyWriters(ctx context.Context, r *Request, a *Answer) error {
	m, err := readModel(ctx, r.Source, convert.Open)
	if err != nil {
		return err
	}
	defer m.Source.Close()
	if err := identify.CheckQuantized(m, r.Source); err != nil {
		return err
	}
	args := []string{"identify", r.Source}
	var original *checkpoint.Model
	if r.Original != "" {
		if original, err = readModel(ctx, r.Original, convert.Open); err != nil {
			return err
		}
		defer original.Source.Close()
		args = append(args, "--source", r.Original)
	}
	weights, err := identify.Identify(ctx, m, original)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := identify.Print(&text, r.Source, r.Original, identify.Marks(m), weights, false, false); err != nil {
		return err
	}
	a.Text, a.Line = text.String(), line(args...)
	return nil
}
