package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A checkpoint is a directory below that of its run. It is renamed into place when all of it is on
// the disk:
//
//	OUT/checkpoint/step-00000120/state.json         configuration, step, losses, names and rows of the other files
//	                             state.safetensors  master weights, moments, scales and amax histories, all F32
//
// If the ranks of a job have different rows or columns of the weights and moments, rank 1 of 4 writes
// its own to state-1-of-4.safetensors. A job of any number of ranks resumes from either.
//
// The previous checkpoint is removed after that. When the run is complete, the model is in OUT, and the
// directory of checkpoints is renamed and removed.
const (
	checkpointFolder = "checkpoint"
	discardedFolder  = checkpointFolder + ".discarded"
	stepPrefix       = "step-"
	partialSuffix    = ".partial"
	stateName        = "state.json"
	tensorsName      = "state.safetensors"
	rankTensorsName  = "state-%d-of-%d.safetensors"
)

// maxState is the maximum size of state.json in bytes. A million steps need about 20 MB.
const maxState = 1 << 30

// stateVersion is the version of this layout.
const stateVersion = 6

// A stateFile is state.json.
type stateFile struct {
	Version  int             `json:"version"`
	Checksum string          `json:"crc32c"` // of State without white space
	State    json.RawMessage `json:"state"`
}

// state is what a run carries from one step to the next, apart from tensors.
type state struct {
	Step          int               `json:"step"` // steps done
	Configuration json.RawMessage   `json:"configuration"`
	Arguments     []string          `json:"arguments,omitempty"`
	TrainLoss     []float64         `json:"train_loss"`
	Validation    []ValidationPoint `json:"validation"`
	Tokens        int               `json:"tokens"` // trained on, without padding
	Seconds       float64           `json:"seconds"`
	Files         []tensorFile      `json:"files"`
}

// A tensorFile describes a file of tensors.
type tensorFile struct {
	Name     string          `json:"name"`
	Bytes    int64           `json:"bytes"`
	Checksum string          `json:"crc32c"`
	Rows     map[string]span `json:"rows,omitempty"`    // of parameters; without an entry, the file has all rows
	Columns  map[string]span `json:"columns,omitempty"` // likewise
}

// An incomplete error reports a checkpoint with missing, empty or truncated files.
type incomplete struct{ error }

func (e incomplete) Unwrap() error { return e.error }

// A named tensor of a checkpoint shares its data with its owner.
type named struct {
	name string
	data []float32
}

// writeCheckpoint adds a checkpoint to the run in out and removes the others. Every rank calls it.
// file has the name of this rank's file and the rows of its tensors. A rank without a name writes no file.
// On error, the other checkpoints are unchanged.
func (p *Parallel) writeCheckpoint(out string, s *state, file tensorFile, tensors []named) error {
	parent := filepath.Join(out, checkpointFolder)
	final := filepath.Join(parent, fmt.Sprintf("%s%08d", stepPrefix, s.Step))
	partial := final + partialSuffix
	exists, err := fromFirst(p, func() (bool, error) {
		if _, err := os.Stat(final); err == nil {
			return true, nil // the run was interrupted before the step after a resume
		}
		if err := os.RemoveAll(partial); err != nil {
			return false, err
		}
		return false, os.MkdirAll(partial, 0o777)
	})
	if err != nil || exists {
		return err
	}
	if s.Files, err = p.writeFile(partial, file, tensors); err == nil {
		err = p.onFirst(func() error { return s.commit(partial, final) })
	}
	if err != nil {
		if p.rank() == 0 {
			_ = os.RemoveAll(partial) // the next run removes what is left
		}
		return err
	}
	return p.onFirst(func() error { return removeCheckpoints(parent, filepath.Base(final)) })
}

// writeFile writes the tensors of this rank below dir, and returns the files of all ranks. All ranks
// return an error if one does.
func (p *Parallel) writeFile(dir string, file tensorFile, tensors []named) (files []tensorFile, err error) {
	if file.Name != "" {
		file.Bytes, file.Checksum, err = writeTensors(filepath.Join(dir, file.Name), tensors)
	}
	if err := p.agree(err); err != nil {
		return nil, err
	}
	text, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	all, err := p.group(trafficControl).GatherAll(text)
	if err != nil {
		return nil, err
	}
	for _, text := range all {
		var f tensorFile
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, err
		}
		if f.Name != "" {
			files = append(files, f)
		}
	}
	return files, nil
}

// commit completes a checkpoint: it writes the state and renames the directory.
func (s *state) commit(partial, final string) error {
	text, err := s.marshal()
	if err != nil {
		return err
	}
	if err := durable.WriteNew(filepath.Join(partial, stateName), text); err != nil {
		return err
	}
	if err := durable.SyncDir(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, final); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(final))
}

// removeCheckpoints removes all checkpoints in parent except keep.
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
	return nil
}

// A numbered checkpoint is one after a number of steps.
type numbered struct {
	step int
	dir  string
}

// checkpoints returns the checkpoints among the entries of parent, that of the most steps first. There
// can be several if a run was killed before it removed the previous one.
func checkpoints(parent string, entries []fs.DirEntry) []numbered {
	var found []numbered
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), stepPrefix)
		if n, err := strconv.Atoi(digits); ok && err == nil && n >= 0 {
			found = append(found, numbered{n, filepath.Join(parent, e.Name())})
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return b.step - a.step })
	return found
}

// marshal returns the state as a file.
func (s *state) marshal() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(stateFile{stateVersion, checksumText(crc32.Checksum(text, castagnoli)), text}, "", "  ")
	return append(text, '\n'), err
}

// readState reads and verifies the state of a checkpoint.
func readState(dir string) (*state, error) {
	path := filepath.Join(dir, stateName)
	text, err := limits.ReadFile(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, incomplete{fmt.Errorf("%s: the file is missing", path)}
	}
	if err != nil {
		return nil, err
	}
	var file stateFile
	if err := json.Unmarshal(text, &file); err != nil {
		syntax, ok := errors.AsType[*json.SyntaxError](err)
		if ok && syntax.Offset == int64(len(text)) || len(bytes.Trim(text, "\x00")) == 0 { // a loss of power leaves zeros
			return nil, incomplete{fmt.Errorf("%s: the end of the file is missing", path)}
		}
		return nil, fmt.Errorf("%s: not the state of a training run: %w", path, err)
	}
	if file.Version != stateVersion {
		return nil, fmt.Errorf("%s: got version %d, want %d: resume with the program that wrote it", path, file.Version, stateVersion)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, file.State); err != nil {
		return nil, fmt.Errorf("%s: not the state of a training run: %w", path, err)
	}
	if got := checksumText(crc32.Checksum(compact.Bytes(), castagnoli)); got != file.Checksum {
		return nil, damaged(path, got, file.Checksum)
	}
	s := &state{}
	if err := json.Unmarshal(file.State, s); err != nil {
		return nil, fmt.Errorf("%s: not the state of a training run: %w", path, err)
	}
	if s.Step != len(s.TrainLoss) || s.Step < 0 {
		return nil, fmt.Errorf("%s: got %d losses after %d steps", path, len(s.TrainLoss), s.Step)
	}
	return s, nil
}

func damaged(path, got, want string) error {
	return fmt.Errorf("%s: the file is damaged: got CRC-32C %s, want %s", path, got, want)
}

// writeTensors writes the tensors, and returns the size and the CRC-32C that the file should have.
func writeTensors(path string, tensors []named) (size int64, checksum string, err error) {
	specs := make([]safetensors.Spec, len(tensors))
	for i, t := range tensors {
		specs[i] = safetensors.Spec{Name: t.name, Dtype: safetensors.F32, Shape: []int64{int64(len(t.data))}}
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		return 0, "", err
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		return 0, "", err
	}
	defer w.Abort()
	data := make(map[string][]float32, len(tensors))
	for _, t := range tensors {
		data[t.name] = t.data
	}
	sum := crc32.Update(0, castagnoli, layout.HeaderBytes())
	var buffer []byte
	for _, info := range layout.Tensors() { // in the order of the file
		values := data[info.Name]
		buffer = slices.Grow(buffer[:0], 4*len(values))[:4*len(values)]
		if err := tensor.ToBytes(buffer, values, format.F32); err != nil {
			return 0, "", err
		}
		if err := w.WriteTensorAt(info.Name, buffer, 0); err != nil {
			return 0, "", err
		}
		sum = crc32.Update(sum, castagnoli, buffer)
	}
	return layout.FileSize(), checksumText(sum), w.Close()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksumText(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// scalesPrefix is the prefix of the names of delayed scaling state.
const scalesPrefix = "scales/"

// storeError returns the error for a failure to write what below out.
func storeError(err error, out string, what string) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%s: the disk is full: %s was not written: %w", out, what, syscall.ENOSPC)
	}
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		return fmt.Errorf("%s: %s was not written: %w", cause.Path, what, cause.Err)
	}
	return fmt.Errorf("%s was not written: %w", what, err)
}
