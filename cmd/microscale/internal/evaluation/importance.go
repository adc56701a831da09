package evaluation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/durable"
)

// IsImportance reports whether a file to write is an importance matrix of llama.cpp, by the end of its name.
func IsImportance(path string) bool { return llamacpp.Named(path) }

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
	c.known = func(key string) (bool, error) { return calibration.Has(own, key), nil }
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

// writeImportance writes statistics as llama-imatrix does: for each tensor of the GGUF file of a model, that of all experts for theirs, the
// sums of the squares of each column, and the tokens. An expert without tokens has the mean squares of all experts, as one token.
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
	var names []string
	for name, matrices := range tensors {
		if i := slices.Index(matrices, nil); i >= 0 {
			return fmt.Errorf("the text has no statistics of matrix %d of %s", i, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	var specs []gguf.Spec
	for _, name := range names {
		n := int64(len(tensors[name]))
		specs = append(specs, gguf.Spec{Name: name + ".in_sum2", Type: gguf.F32, Shape: []int64{n, int64(tensors[name][0].Width())}},
			gguf.Spec{Name: name + ".counts", Type: gguf.F32, Shape: []int64{n, 1}})
	}
	l, err := gguf.NewLayout(specs, []gguf.Pair{{Key: "general.type", Value: "imatrix"},
		{Key: "imatrix.datasets", Value: []string{filepath.Base(r.document.path)}},
		{Key: "imatrix.chunk_count", Value: uint32(r.windows)}, {Key: "imatrix.chunk_size", Value: uint32(r.Context)}})
	if err != nil {
		return err
	}
	return durable.WriteStream(path, func(w io.Writer) error {
		at := int64(len(l.HeaderBytes()))
		_, err := w.Write(l.HeaderBytes())
		for _, t := range l.Tensors() {
			name, counts := strings.CutSuffix(t.Name, ".counts")
			var values []float32
			for _, in := range tensors[strings.TrimSuffix(name, ".in_sum2")] {
				tokens := float32(max(1, in.Tokens))
				if counts {
					values = append(values, tokens)
					continue
				}
				for _, v := range in.Square {
					values = append(values, v*tokens)
				}
			}
			begin, _ := l.Offset(t.Name)
			if err == nil {
				_, err = w.Write(make([]byte, begin-at))
			}
			if err == nil {
				err = binary.Write(w, binary.LittleEndian, values)
			}
			at = begin + t.Bytes()
		}
		if err == nil {
			_, err = w.Write(make([]byte, l.FileSize()-at))
		}
		return err
	}, durable.RenameNew)
}
