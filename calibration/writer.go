package calibration

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// A writer gathers what a file of statistics is to hold. Its data is made while it is written.
type writer struct {
	header header
	specs  []safetensors.Spec
	data   []func() ([]byte, error)
}

// A vector is a tensor of an input, of n numbers.
type vector struct {
	end  string
	n    int
	data func() ([]byte, error)
}

// input adds an input, and returns its index.
func (w *writer) input(h headerInput, vectors ...vector) int {
	at := len(w.header.Inputs)
	w.header.Inputs = append(w.header.Inputs, h)
	for _, v := range vectors {
		w.specs = append(w.specs, safetensors.Spec{Name: strconv.Itoa(at) + v.end, Dtype: safetensors.F32, Shape: []int64{int64(v.n)}})
		w.data = append(w.data, v.data)
	}
	return at
}

// sums adds an input of which the sums are known.
func (w *writer) sums(s *sums, h headerInput) int {
	n, scale := len(s.square), 1/float64(s.tokens)
	vectors := []vector{
		{mean, n, func() ([]byte, error) { return scaled(s.mean, scale), nil }},
		{square, n, func() ([]byte, error) { return scaled(s.square, scale), nil }},
	}
	if s.peak != nil {
		vectors = append(vectors, vector{peak, n, func() ([]byte, error) { return scaled(s.peak, 1), nil }})
	}
	if s.hessian != nil {
		vectors = append(vectors, vector{hessian, n * (n + 1) / 2, func() ([]byte, error) { return scaled(upper(s.hessian, n), scale), nil }})
	}
	if s.drift != nil {
		vectors = append(vectors, vector{drift, n * n, func() ([]byte, error) { return scaled(s.drift, scale), nil }},
			vector{driftSquare, n, func() ([]byte, error) { return scaled(s.driftSquare, scale), nil }})
	}
	return w.input(h, vectors...)
}

// copied adds an input of another file.
func (w *writer) copied(in *Input, h headerInput) {
	w.input(h, in.stored(mean, square, peak, hessian, drift, driftSquare, order, aim, factor)...)
}

// stored returns those of some vectors that the file has, to be copied.
func (in *Input) stored(ends ...string) (vectors []vector) {
	for _, end := range ends {
		if t, ok := in.file.Lookup(in.name + end); ok {
			vectors = append(vectors, vector{end, int(t.Elements()), func() ([]byte, error) {
				v, err := in.floats(end)
				return floatBytes(v), err
			}})
		}
	}
	return vectors
}

// joiningPath returns the path of a file of statistics while it is written: beside it, perhaps on another filesystem than those of layers.
func joiningPath(path string) string { return path + ".microscale-joining" }

// place writes the file durably at a path, which must be new unless it replaces another one.
func (w *writer) place(ctx context.Context, path string, replace bool) error {
	part := joiningPath(path)
	if err := w.write(ctx, part); err != nil {
		return err
	}
	rename := durable.RenameNew
	if replace {
		rename = os.Rename
	}
	if err := rename(part, path); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return durable.SyncDir(filepath.Dir(path))
}

// write writes the file, which is on the disk when write returns, in place of what a run that was killed left.
// On error it is removed.
func (w *writer) write(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var names []string
	for _, s := range w.specs {
		names = append(names, s.Name)
	}
	w.header.Version, w.header.Names = version, namesSum(names)
	text, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	record := checksum.Record{Plan: headerSum(string(text)), Tensors: make([]uint64, len(w.specs))}
	layout, err := safetensors.NewLayout(w.specs, map[string]string{metadataKey: string(text), checksum.RecordKey: record.String()})
	if err != nil {
		return err
	}
	if err := layout.Reserve(record.String()); err != nil {
		return err
	}
	file, err := safetensors.Create(path, layout)
	if err != nil {
		return err
	}
	places := map[string]int{}
	for i, t := range layout.Tensors() {
		places[t.Name] = i
	}
	for i, s := range w.specs {
		data, err := w.data[i]()
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			record.Tensors[places[s.Name]] = checksum.Of(data)
			err = file.WriteTensorAt(s.Name, data, 0)
		}
		if err != nil {
			return errors.Join(err, file.Abort())
		}
	}
	if err := file.Fill(record.String()); err != nil {
		return errors.Join(err, file.Abort())
	}
	return file.Close()
}
