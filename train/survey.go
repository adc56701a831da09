package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
)

// A survey describes the directory of a run. A kill or a loss of power can leave it in these states:
//
//	no directory                            the run starts; an error for one that resumes
//	an empty directory                      the run starts
//	checkpoint/ without step-N              the start was interrupted: the run starts again
//	checkpoint/ with a complete step-N      the run resumes from the last one
//	checkpoint/ with other step-N           an error: the user decides
//	config.json without a checkpoint        the run is complete
type survey struct {
	dir      string   // last complete checkpoint; "" if there is none
	state    *state   // of dir
	unusable []fault  // later checkpoints, or all if none is complete; the last one first
	saved    bool     // the directory has files of a model
	done     bool     // it has all of them
	foreign  string   // a file that no run writes; "" if there is none
	debris   []string // paths of an interrupted start
}

// A fault is a checkpoint that cannot be used, and why.
type fault struct {
	numbered
	err error
}

// look surveys a directory and verifies the checksums of its checkpoints. A directory that does not
// exist is empty.
func look(out string) (*survey, error) {
	s := &survey{}
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, directoryError(out, err)
	}
	saved, unfinished := decoder.FileNames()
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == checkpointFolder && e.IsDir():
			if err := s.lookAtCheckpoints(filepath.Join(out, name)); err != nil {
				return nil, directoryError(out, err)
			}
		case name == discardedFolder && e.IsDir():
			s.debris = append(s.debris, filepath.Join(out, name))
		case slices.Contains(saved, name):
			s.saved = true
			s.done = s.done || name == hf.ConfigName // which is written last
		case !slices.Contains(unfinished, name) && s.foreign == "":
			s.foreign = filepath.Join(out, name)
		}
	}
	return s, nil
}

func (s *survey) lookAtCheckpoints(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), stepPrefix) && s.foreign == "" {
			s.foreign = filepath.Join(parent, e.Name())
		}
	}
	for _, c := range checkpoints(parent, entries) {
		state, err := readState(c.dir)
		if err == nil {
			err = state.checkTensors(c.dir)
		}
		if err == nil {
			s.dir, s.state = c.dir, state
			return nil
		}
		s.unusable = append(s.unusable, fault{c, err})
	}
	s.debris = append(s.debris, parent)
	return nil
}

// damaged returns the last checkpoint that cannot be used, if there is no other. A checkpoint is renamed
// into place when it is complete, so no interruption makes it incomplete: its files were damaged, or a
// copy of them is not complete. An incomplete checkpoint of step 0 does not count: it holds no work.
func (s *survey) damaged() *fault {
	for i, f := range s.unusable {
		if _, torn := errors.AsType[incomplete](f.err); s.dir == "" && (f.step > 0 || !torn) {
			return &s.unusable[i]
		}
	}
	return nil
}

// tidy removes the remains of checkpoints of a complete run.
func (s *survey) tidy() {
	if s.done && s.dir == "" && s.damaged() == nil {
		for _, dir := range s.debris {
			_ = os.RemoveAll(dir) // the run is complete anyway
		}
	}
}

// vacant returns an error if a new run cannot start in the directory.
func (s *survey) vacant(out string) error {
	switch {
	case s.dir != "" || s.damaged() != nil:
		return &DirectoryError{Problem: out + ": the directory has an unfinished run: resume or replace it, or use another directory",
			Taken: true, Remedies: []string{"Resume", "Force", "Out"}}
	case s.foreign != "":
		return &DirectoryError{Problem: fmt.Sprintf("%s: the directory has a file that no run writes, %s: use another directory", out,
			filepath.Base(s.foreign)), Taken: true, Remedies: []string{"Out"}}
	case s.saved:
		return &DirectoryError{Problem: out + ": the directory has a model: replace it, or use another directory", Taken: true,
			Remedies: []string{"Force", "Out"}}
	}
	return nil
}

// resumable returns an error if a resumed run can neither resume nor start.
func (s *survey) resumable(out string) error {
	f := s.damaged()
	switch {
	case s.dir != "":
		return nil
	case f != nil:
		return &DirectoryError{Problem: fmt.Sprintf("%v, and there is no other checkpoint: restore the file, replace the run, or use another "+
			"directory", f.err), Remedies: []string{"Force", "Out"}}
	case s.done:
		return &DirectoryError{Problem: fmt.Sprintf("%s: %v", out, ErrDone), Done: true}
	case s.saved || s.foreign != "":
		return fmt.Errorf("%s: the directory has no checkpoint: use that of an interrupted run", out)
	}
	return nil
}

// clear removes the files of an interrupted start, or with force all files that runs write. If clear itself
// is interrupted, it leaves an interrupted start, or a run that can be resumed.
func (s *survey) clear(out string, force bool) error {
	remove := s.debris
	if force {
		for _, name := range slices.Backward(slices.Concat(decoder.FileNames())) {
			if err := os.Remove(filepath.Join(out, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := discard(out); err != nil {
			return err
		}
	}
	for _, dir := range remove {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// discard removes the checkpoints of a run. It renames them first, so that a kill leaves no incomplete
// one.
func discard(out string) error {
	gone := filepath.Join(out, discardedFolder)
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(out, checkpointFolder), gone)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(out), os.RemoveAll(gone))
}
