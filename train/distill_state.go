package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/tensor"
)

// The state of a distillation is a file of tensors by name, in FP32: logarithms of factors, and moments. Its metadata are the
// progress as JSON, the key of the run, and the checksum of all tensors.
const (
	progressKey = "progress"
	runKey      = "key"
	sumKey      = "checksum"
)

// tensors returns what the state holds.
func (d *distillation) tensors() (list []named) {
	for i, f := range d.factors {
		name, m := f.param.Name, d.moments[i]
		list = append(list, named{name, f.param.Value.Data}, named{name + ".m", m.m}, named{name + ".v", m.v})
	}
	return list
}

// keep writes the state, if the run has a file for it.
func (d *distillation) keep() error {
	if d.State == "" {
		return nil
	}
	progress, err := json.Marshal(d.done)
	if err != nil {
		return err
	}
	tensors := d.tensors()
	var specs []safetensors.Spec
	for _, t := range tensors {
		specs = append(specs, safetensors.Spec{Name: t.name, Dtype: safetensors.F32, Shape: []int64{int64(len(t.data))}})
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{progressKey: string(progress), runKey: d.Key, sumKey: d.sum()})
	if err != nil {
		return err
	}
	partial := d.State + partialSuffix
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storeError(err, d.State, "the state")
	}
	w, err := safetensors.Create(partial, layout)
	if err != nil {
		return storeError(err, d.State, "the state")
	}
	defer w.Abort()
	for _, t := range tensors {
		data := make([]byte, 4*len(t.data))
		if err := tensor.ToBytes(data, t.data, format.F32); err != nil {
			return err
		}
		if err := w.WriteTensorAt(t.name, data, 0); err != nil {
			return storeError(err, d.State, "the state")
		}
	}
	if err := w.Close(); err != nil {
		return storeError(err, d.State, "the state")
	}
	if err := os.Rename(partial, d.State); err != nil {
		return storeError(err, d.State, "the state")
	}
	return durable.SyncDir(filepath.Dir(d.State))
}

// sum returns the checksum of the tensors and the progress.
func (d *distillation) sum() string {
	total := uint64(d.done.Steps)
	for _, t := range d.tensors() {
		total = total*3 + checksum.Of(memory.Bytes(t.data))
	}
	return strconv.FormatUint(total, 16)
}

// An OtherRunError is the error of a Distillation whose file State is of a run with another key.
type OtherRunError struct{ State, Key string }

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("distill: %s is the state of another run: remove it, or name another file", e.State)
}

// restore sets the state to that of an interrupted run with the same key. A state that is damaged is ignored, and one of another run an
// OtherRunError.
func (d *distillation) restore() error {
	if d.State == "" {
		return nil
	}
	f, err := safetensors.Open(d.State)
	if err != nil {
		if _, damaged := errors.AsType[*safetensors.ContainerError](err); damaged || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer f.Close()
	if key := f.Metadata()[runKey]; key != "" && key != d.Key {
		return &OtherRunError{d.State, key}
	}
	if ok, err := d.read(f); !ok { // as new
		d.done = Distilled{Scales: d.done.Scales}
		for _, t := range d.tensors() {
			clear(t.data)
		}
		return err
	}
	return nil
}

// read sets the state to that of a file. ok is false if it is damaged.
func (d *distillation) read(f *safetensors.File) (ok bool, err error) {
	metadata := f.Metadata()
	if metadata[runKey] != d.Key || json.Unmarshal([]byte(metadata[progressKey]), &d.done) != nil {
		return false, nil
	}
	for _, t := range d.tensors() {
		info, ok := f.Lookup(t.name)
		if !ok || info.Bytes() != int64(4*len(t.data)) {
			return false, nil
		}
		if err := readFloats(f, info, t.data, 0); err != nil {
			return false, err
		}
	}
	return d.sum() == metadata[sumKey], nil
}
