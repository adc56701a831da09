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
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/nn"
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
	f, info, err := limits.Open(path)
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

// A wanted tensor is restored from the files of a checkpoint: some rows and columns of a parameter.
type wanted struct {
	name          string // of the tensor
	of            string // parameter
	rows, columns span
	whole         nn.Place
	data          []float32
}

// restore reads the wanted tensors from the files of a checkpoint in dir. It returns the other
// tensors, whose names begin with scalesPrefix.
func (s *state) restore(dir string, tensors []wanted) (scales map[string][]float32, err error) {
	scales = map[string][]float32{}
	missing := map[string]int{} // elements that no file has
	for _, t := range tensors {
		missing[t.name] = t.rows.len() * t.columns.len()
	}
	for _, f := range s.Files {
		path := filepath.Join(dir, f.Name)
		if err := f.restore(path, tensors, missing, scales); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, t := range tensors {
		if missing[t.name] != 0 {
			return nil, fmt.Errorf("%s: %d elements of tensor %s are missing: the checkpoint is of another model", dir, missing[t.name], t.name)
		}
	}
	return scales, nil
}

// restore reads from one file, and subtracts the elements that it reads from missing.
func (t *tensorFile) restore(path string, tensors []wanted, missing map[string]int, scales map[string][]float32) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	known := map[string]bool{}
	for _, w := range tensors {
		known[w.name] = true
		n, err := t.restorePart(f, w)
		if err != nil {
			return err
		}
		missing[w.name] -= n
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

// restorePart reads the elements of a wanted tensor that the file has, and returns their number.
func (t *tensorFile) restorePart(f *safetensors.File, w wanted) (elements int, err error) {
	rows, columns := t.has(w)
	r, c := rows.and(w.rows), columns.and(w.columns)
	if r.len() == 0 || c.len() == 0 {
		return 0, nil
	}
	info, ok := f.Lookup(w.name)
	if n := rows.len() * columns.len(); !ok || info.Dtype != safetensors.F32 || info.Elements() != int64(n) {
		return 0, fmt.Errorf("tensor %s of %d F32 values is missing: the checkpoint is of another model", w.name, n)
	}
	read := make([]float32, r.len()*columns.len())
	if err := readFloats(f, info, read, (r.From-rows.From)*columns.len()); err != nil {
		return 0, err
	}
	for i := range r.len() {
		from := i*columns.len() + c.From - columns.From
		to := (r.From+i-w.rows.From)*w.columns.len() + c.From - w.columns.From
		copy(w.data[to:], read[from:from+c.len()])
	}
	return r.len() * c.len(), nil
}

// has returns the rows and columns of a parameter that the file has.
func (t *tensorFile) has(w wanted) (rows, columns span) {
	rows, columns = span{0, w.whole.Rows}, span{0, w.whole.Cols}
	if s, ok := t.Rows[w.of]; ok {
		rows = s
	}
	if s, ok := t.Columns[w.of]; ok {
		columns = s
	}
	return rows, columns
}

// readFloats reads values of a tensor from element first on.
func readFloats(f *safetensors.File, info safetensors.TensorInfo, dst []float32, first int) error {
	buffer := make([]byte, 4*len(dst))
	if err := f.ReadTensorAt(buffer, info, int64(4*first)); err != nil {
		return err
	}
	return tensor.FromBytes(dst, buffer, format.F32)
}
