package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/llama"
)

// A survey is what the directory of a run holds. Every state that a kill or a loss of
// power can leave is one of:
//
//	nothing, or no directory              the run starts
//	checkpoint/, without a whole one      the start was interrupted: the run starts again
//	checkpoint/ with a whole one          the run resumes from it, the last one first
//	checkpoint/ with a damaged one alone  an error: whoever runs it decides
//	config.json and no checkpoint         the run is done
type survey struct {
	dir     string   // the last checkpoint that is whole; "" where there is none
	state   *state   // of dir
	passed  []fault  // later checkpoints, or all where none is whole; the last one first
	saved   bool     // files of a model are there
	done    bool     // all of them
	foreign string   // an entry that no run writes; "" where there is none
	debris  []string // what an interrupted start left, by paths
}

// ErrDone is the error of resuming a run that is done.
var ErrDone = errors.New("the run there is done: there is nothing to resume")

// A fault is a checkpoint that cannot be resumed from, and why.
type fault struct {
	dir string
	err error
}

// look surveys a directory, whose checkpoints it reads and compares with their
// checksums. One that is not there is empty.
func look(out string) (*survey, error) {
	s := &survey{}
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, unusable(out, err)
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == checkpointFolder && e.IsDir():
			if err := s.lookAtCheckpoints(filepath.Join(out, name)); err != nil {
				return nil, unusable(out, err)
			}
		case name == discardedFolder && e.IsDir():
			s.debris = append(s.debris, filepath.Join(out, name))
		case slices.Contains(llama.SavedNames(), name):
			s.saved = true
			s.done = s.done || name == hf.ConfigName // which is written last
		case !slices.Contains(llama.UnfinishedNames(), name) && s.foreign == "":
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
	for _, dir := range checkpoints(parent, entries) {
		state, err := readState(dir)
		if err == nil {
			err = state.checkTensors(filepath.Join(dir, tensorsName))
		}
		if err == nil {
			s.dir, s.state = dir, state
			return nil
		}
		s.passed = append(s.passed, fault{dir, err})
	}
	s.debris = append(s.debris, parent)
	return nil
}

// damaged returns the first checkpoint that was whole once, where none is now.
func (s *survey) damaged() *fault {
	for i, f := range s.passed {
		if _, torn := errors.AsType[incomplete](f.err); s.dir == "" && !torn {
			return &s.passed[i]
		}
	}
	return nil
}

// tidy removes what the end of a run that is done left when it was interrupted.
func (s *survey) tidy() {
	if s.done && s.dir == "" && s.damaged() == nil {
		for _, dir := range s.debris {
			_ = os.RemoveAll(dir) // the run is done all the same
		}
	}
}

// vacant reports why a new run cannot begin in the directory.
func (s *survey) vacant(out string) error {
	switch {
	case s.dir != "" || s.damaged() != nil:
		return fmt.Errorf("%s: a run that is not done has its checkpoint there: resume it, force a new run in its place, or name another directory", out)
	case s.saved || s.foreign != "":
		return fmt.Errorf("%s: the directory is not empty: name another, or remove it", out)
	}
	return nil
}

// resumable reports why a run that resumes can neither do so nor start.
func (s *survey) resumable(out string) error {
	f := s.damaged()
	switch {
	case s.dir != "":
		return nil
	case f != nil:
		return fmt.Errorf("%w: no other checkpoint is there, so start anew in another directory, or force a new run in its place", f.err)
	case s.done:
		return fmt.Errorf("%s: %w", out, ErrDone)
	case s.saved || s.foreign != "":
		return fmt.Errorf("%s: no checkpoint of a run is there: name the directory of one that was interrupted", out)
	}
	return nil
}

// notice words where a run that resumes begins.
func (s *survey) notice(out string) string {
	from := fmt.Sprintf("%s: no checkpoint is there: the run starts from the beginning", out)
	if s.dir != "" {
		from = fmt.Sprintf("%s: the run resumes after step %d", out, s.state.Step)
	}
	if len(s.passed) > 0 {
		from += fmt.Sprintf(" (%v)", s.passed[0].err)
	}
	return from
}

// clear removes what an interrupted start left, or with force all that runs write.
// Where it is interrupted itself, the rest is such a start, or a run to resume.
func (s *survey) clear(out string, force bool) error {
	remove := s.debris
	if force {
		for _, name := range slices.Backward(slices.Concat(llama.SavedNames(), llama.UnfinishedNames())) {
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

// discard removes the checkpoints of a run. They are renamed first, so that no kill
// leaves part of one.
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
	return errors.Join(syncDir(out), os.RemoveAll(gone))
}
