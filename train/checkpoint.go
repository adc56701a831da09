package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A run's checkpoints are below its directory, each a directory that appears
// with one renaming when all of it is on the disk:
//
//	OUT/checkpoint/step-00000120/state.json         configuration, step, losses
//	                             state.safetensors  master weights, moments, scales and their histories, all F32
//
// The one before is removed after that. When the run is done the model is in OUT
// and there are no checkpoints.
const (
	checkpointFolder = "checkpoint"
	stepPrefix       = "step-"
	partialSuffix    = ".partial"
	stateName        = "state.json"
	tensorsName      = "state.safetensors"
)

// stateVersion is that of the layout above.
const stateVersion = 1

// state is what goes on from one step to the next beside the tensors.
type state struct {
	Version       int               `json:"version"`
	Step          int               `json:"step"` // steps done
	Configuration json.RawMessage   `json:"configuration"`
	Arguments     []string          `json:"arguments,omitempty"`
	TrainLoss     []float64         `json:"train_loss"`
	Validation    []ValidationPoint `json:"validation"`
	Seconds       float64           `json:"seconds"`
}

// A named is a tensor of a checkpoint, shared with whom it belongs to.
type named struct {
	name string
	data []float32
}

// writeCheckpoint adds a checkpoint to the run in out, and removes the others.
// When it fails those are still there.
func writeCheckpoint(out string, s *state, tensors []named) error {
	parent := filepath.Join(out, checkpointFolder)
	final := filepath.Join(parent, fmt.Sprintf("%s%08d", stepPrefix, s.Step))
	if _, err := os.Stat(final); err == nil {
		return nil // resumed from it, and interrupted before the next
	}
	partial := final + partialSuffix
	err := func() error {
		if err := os.RemoveAll(partial); err != nil {
			return err
		}
		if err := os.MkdirAll(partial, 0o777); err != nil {
			return err
		}
		if err := writeTensors(filepath.Join(partial, tensorsName), tensors); err != nil {
			return err
		}
		text, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return err
		}
		if err := writeSynced(filepath.Join(partial, stateName), append(text, '\n')); err != nil {
			return err
		}
		if err := syncDir(partial); err != nil {
			return err
		}
		if err := os.Rename(partial, final); err != nil {
			return err
		}
		return syncDir(parent)
	}()
	if err != nil {
		_ = os.RemoveAll(partial) // the next run removes what stays
		return err
	}
	return removeCheckpoints(parent, filepath.Base(final))
}

// removeCheckpoints removes what is in a run's folder of checkpoints but for the
// one to keep, and the folder where none is.
func removeCheckpoints(parent, keep string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != keep && strings.HasPrefix(e.Name(), stepPrefix) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	if keep == "" {
		return os.Remove(parent)
	}
	return nil
}

// latest returns the checkpoint of the most steps in out, and "" where there is
// none.
func latest(out string) (string, error) {
	parent := filepath.Join(out, checkpointFolder)
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	best, most := "", -1
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), stepPrefix)
		if n, err := strconv.Atoi(digits); ok && err == nil && n > most {
			best, most = filepath.Join(parent, e.Name()), n
		}
	}
	return best, nil
}

// readState reads what a checkpoint says of itself.
func readState(dir string) (*state, error) {
	path := filepath.Join(dir, stateName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &state{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: not the state of a training run: %v: remove the checkpoint and start again", path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%s: version %d of the layout, and this program reads %d: resume with the program that wrote it", path, s.Version, stateVersion)
	}
	if s.Step != len(s.TrainLoss) || s.Step < 0 {
		return nil, fmt.Errorf("%s: %d losses after %d steps: remove the checkpoint and start again", path, len(s.TrainLoss), s.Step)
	}
	return s, nil
}

func writeTensors(path string, tensors []named) (err error) {
	specs := make([]safetensors.Spec, len(tensors))
	for i, t := range tensors {
		specs[i] = safetensors.Spec{Name: t.name, Dtype: safetensors.F32, Shape: []int64{int64(len(t.data))}}
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		return err
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		return err
	}
	defer w.Abort()
	var buffer []byte
	for _, t := range tensors {
		buffer = slices.Grow(buffer[:0], 4*len(t.data))[:4*len(t.data)]
		if err := tensor.ToBytes(buffer, t.data, format.F32); err != nil {
			return err
		}
		if err := w.WriteTensorAt(t.name, buffer, 0); err != nil {
			return err
		}
	}
	return w.Close()
}

// readTensors fills the tensors from a file that has them all, and returns the
// others that it has, whose names begin with scalesPrefix.
func readTensors(path string, tensors []named) (scales map[string][]float32, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	read := func(info safetensors.TensorInfo, data []float32) error {
		buffer := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(buffer, info, 0); err != nil {
			return err
		}
		return tensor.FromBytes(data, buffer, format.F32)
	}
	for _, t := range tensors {
		info, ok := f.Lookup(t.name)
		if !ok || info.Dtype != safetensors.F32 || info.Elements() != int64(len(t.data)) {
			return nil, fmt.Errorf("%s: no tensor %s of %d F32 values: the checkpoint is of another model", path, t.name, len(t.data))
		}
		if err := read(info, t.data); err != nil {
			return nil, err
		}
	}
	scales = map[string][]float32{}
	for _, info := range f.Tensors() {
		name, ok := strings.CutPrefix(info.Name, scalesPrefix)
		switch {
		case ok && info.Dtype == safetensors.F32:
			scales[name] = make([]float32, info.Elements())
			if err := read(info, scales[name]); err != nil {
				return nil, err
			}
		case !slices.ContainsFunc(tensors, func(t named) bool { return t.name == info.Name }):
			return nil, fmt.Errorf("%s: a tensor %s, which the model has not: the checkpoint is of another model", path, info.Name)
		}
	}
	return scales, nil
}

// scalesPrefix begins the names of the state of delayed scaling.
const scalesPrefix = "scales/"

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// storeError words a failure to write below out.
func storeError(err error, out string, what string) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%s: the disk is full: %s was not written; free space there", out, what)
	}
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		return fmt.Errorf("%s: %s was not written: %w", cause.Path, what, cause.Err)
	}
	return fmt.Errorf("%s was not written: %w", what, err)
}
