package playground

import (
	"bytes"
	"context"
	"fmt"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/identify"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
)

// read reads the headers of a checkpoint. The caller closes its source.
func read(ctx context.Context, path string, open func(string) (*hf.Checkpoint, error)) (*checkpoint.Model, error) {
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

// inspect answers as inspect.
func inspect(ctx context.Context, r *Request, a *Answer) error {
	m, err := read(ctx, r.Source, convert.Open)
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

// openBroken opens a checkpoint whose index may contradict its files, too.
func openBroken(path string) (*hf.Checkpoint, error) {
	c, err := convert.Open(path)
	if err != nil {
		if broken, openErr := hf.OpenUnchecked(path); openErr == nil {
			return broken, nil
		}
	}
	return c, err
}

// findings answers as lint.
func findings(ctx context.Context, r *Request, a *Answer) error {
	m, err := read(ctx, r.Source, openBroken)
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

// writers answers as identify.
func writers(ctx context.Context, r *Request, a *Answer) error {
	m, err := read(ctx, r.Source, convert.Open)
	if err != nil {
		return err
	}
	defer m.Source.Close()
	if m.Quantized() == 0 {
		if len(m.Problems) > 0 {
			return fmt.Errorf("%s: %s", r.Source, m.Problems[0])
		}
		return fmt.Errorf("%s: not quantized: there are no codes and scales to identify", r.Source)
	}
	args := []string{"identify", r.Source}
	var original *checkpoint.Model
	if r.Original != "" {
		if original, err = read(ctx, r.Original, convert.Open); err != nil {
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
