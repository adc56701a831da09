package train

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// checkTensors returns an error if a file of tensors in dir is not the one that was written with s.
func (s *state) checkTensors(dir string) error {
	for _, want := range s.Files {
		if err := want.check(filepath.Join(dir, want.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tensorFile) check(path string) error {
	f, info, err := bounded.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return incomplete{fmt.Errorf("%s: the file is missing", path)}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info.Size() < t.Bytes {
		return incomplete{fmt.Errorf("%s: the end of the file is missing", path)}
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := checksumText(sum.Sum32()); got != t.Checksum {
		return damaged(path, got, t.Checksum)
	}
	return nil
}

// A wanted tensor is restored from the files of a checkpoint: rows [From, To) of a parameter.
type wanted struct {
	name string // of the tensor
	of   string // parameter
	span
	rows, cols int // of the parameter
	data       []float32
}

// restore reads the wanted tensors from the files of a checkpoint in dir. It returns the other
// tensors, whose names begin with scalesPrefix.
func (s *state) restore(dir string, tensors []wanted) (scales map[string][]float32, err error) {
	scales = map[string][]float32{}
	missing := map[string]int{} // rows that no file has
	for _, t := range tensors {
		missing[t.name] = t.To - t.From
	}
	for _, f := range s.Files {
		path := filepath.Join(dir, f.Name)
		if err := f.restore(path, tensors, missing, scales); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, t := range tensors {
		if missing[t.name] != 0 {
			return nil, fmt.Errorf("%s: %d rows of tensor %s are missing: the checkpoint is of another model", dir, missing[t.name], t.name)
		}
	}
	return scales, nil
}

// restore reads from one file, and subtracts the rows that it reads from missing.
func (t *tensorFile) restore(path string, tensors []wanted, missing map[string]int, scales map[string][]float32) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	known := map[string]bool{}
	for _, w := range tensors {
		known[w.name] = true
		has, ok := t.Rows[w.of]
		if !ok {
			has = span{0, w.rows}
		}
		from, to := max(has.From, w.From), min(has.To, w.To)
		if from >= to {
			continue
		}
		info, ok := f.Lookup(w.name)
		if elements := (has.To - has.From) * w.cols; !ok || info.Dtype != safetensors.F32 || info.Elements() != int64(elements) {
			return fmt.Errorf("tensor %s of %d F32 values is missing: the checkpoint is of another model", w.name, elements)
		}
		if err := readFloats(f, info, w.data[(from-w.From)*w.cols:(to-w.From)*w.cols], (from-has.From)*w.cols); err != nil {
			return err
		}
		missing[w.name] -= to - from
	}
	for _, info := range f.Tensors() {
		name, ok := strings.CutPrefix(info.Name, scalesPrefix)
		switch {
		case ok && info.Dtype == safetensors.F32:
			scales[name] = make([]float32, info.Elements())
			if err := readFloats(f, info, scales[name], 0); err != nil {
				return err
			}
		case !known[info.Name]:
			return fmt.Errorf("unexpected tensor %s: the checkpoint is of another model", info.Name)
		}
	}
	return nil
}

// readFloats reads values of a tensor from element first on.
func readFloats(f *safetensors.File, info safetensors.TensorInfo, dst []float32, first int) error {
	buffer := make([]byte, 4*len(dst))
	if err := f.ReadTensorAt(buffer, info, int64(4*first)); err != nil {
		return err
	}
	return tensor.FromBytes(dst, buffer, format.F32)
}
