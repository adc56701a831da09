package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/gguf"
)

// IsImportance reports whether a file to write is an importance matrix of llama.cpp, by the end of its name.
func IsImportance(path string) bool { return gguf.Named(path) }

// runImportance reads the text, and writes the statistics as an importance matrix of llama.cpp. They are in a separate file until then,
// from which a run that was killed continues.
func (c Calibration) runImportance(ctx context.Context) (*Evaluated, error) {
	own := c.Out + windows.OwnName + "statistics.safetensors"
	if _, err := os.Lstat(c.Out); err == nil {
		_ = os.Remove(own) // of a run that was killed after it had written Out
		return nil, exists(c.Out)
	}
	source, err := input.Open(ctx, c.Model)
	if err != nil {
		return nil, err
	}
	model, err := llamacpp.Describe(source) // before the work
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, fmt.Errorf("an importance matrix has names of a GGUF file: %w", err)
	}
	c.inputs = &calibration.Collector{Dir: c.Stream, Out: own, Threads: c.Threads, Replace: true}
	c.known = func(key string) (bool, error) { return calibration.KeyOf(own) == key, nil }
	r, err := c.Evaluation.Run(ctx)
	if err != nil {
		return nil, err
	}
	s, err := calibration.Read(own)
	if err != nil {
		return nil, err
	}
	err = writeImportance(c.Out, s, model, r)
	if errors.Is(err, fs.ErrExist) { // another program was faster
		err = exists(c.Out)
	}
	return r, errors.Join(err, s.Close(), os.Remove(own))
}

// writeImportance writes statistics as llama-imatrix does, by the tensors of the GGUF file of a model: that of all experts for theirs.
func writeImportance(path string, s *calibration.Statistics, model *llamacpp.Model, r *Evaluated) error {
	tensors := map[string][]*calibration.Input{} // of each matrix
	for _, in := range s.Inputs {
		for _, module := range in.Modules {
			at, err := model.Place(module+".weight", []int64{0, int64(in.Width())})
			if err != nil {
				return err
			}
			if tensors[at.Name] == nil {
				tensors[at.Name] = make([]*calibration.Input, max(1, at.Experts))
			}
			tensors[at.Name][at.Expert] = in
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if i := slices.Index(tensors[name], nil); i >= 0 {
			return fmt.Errorf("the text has no statistics of matrix %d of %s", i, name)
		}
	}
	return calibration.WriteImportance(path, tensors, filepath.Base(r.document.path), r.windows, r.Context)
}
