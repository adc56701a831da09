package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/lock"
	"github.com/microscale-go/microscale/safetensors"
)

// claim makes the directory of a run, and locks it against others until release is
// called.
func (r *run) claim() (release func(), err error) {
	if r.Out == "" {
		return func() {}, nil
	}
	if !r.Resume { // what is refused makes no directory; a run that resumes is refused in open
		s, err := look(r.Out)
		if err == nil {
			err = r.admit(s)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(r.Out, 0o777); err != nil {
		return nil, storeError(err, r.Out, "the run")
	}
	return claim(r.Out)
}

// admit reports why the run cannot begin, or resume, where s is.
func (r *run) admit(s *survey) error {
	switch {
	case r.Resume:
		s.tidy()
		return s.resumable(r.Out)
	case r.Force && s.foreign != "":
		return fmt.Errorf("%s: no run writes this: remove it, or name another directory", s.foreign)
	case r.Force:
		return nil
	}
	return s.vacant(r.Out)
}

// claim locks the directory of a run.
func claim(out string) (release func(), err error) {
	held, err := lock.Dir(out)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("%s: another run is writing to it: wait for it, or name another directory", out)
	}
	if err != nil {
		return nil, unusable(out, err)
	}
	return func() { _ = held.Close() }, nil // nothing was written through it
}

// open begins a run: at the start, or where the checkpoint to resume from is.
func (r *run) open() (err error) {
	r.kept = -1
	if r.state.Configuration, err = r.identity(); err != nil {
		return err
	}
	r.state.Arguments = r.Arguments
	r.state.TrainLoss, r.state.Validation = []float64{}, []ValidationPoint{}
	if r.Out == "" {
		return nil
	}
	s, err := look(r.Out) // again: another run may have ended before this one had the lock
	if err == nil {
		err = r.admit(s)
	}
	if err != nil {
		return err
	}
	if r.Resume && s.dir != "" {
		err = r.resume(s)
	} else {
		err = r.start(s)
	}
	if err == nil && r.Resume && r.hooks.Resumed != nil {
		r.hooks.Resumed(s.notice(r.Out))
	}
	return err
}

// start writes the first checkpoint, in place of what an interrupted start left.
func (r *run) start(s *survey) error {
	if err := storeError(s.clear(r.Out, r.Force), r.Out, "the start of the run"); err != nil {
		return err
	}
	if err := r.checkpoint(); err != nil {
		r.withdraw(err)
		return err
	}
	return nil
}

// Vacant reports why a new run cannot write to a directory: something is there, other
// than what an interrupted start left.
func Vacant(out string) error {
	s, err := look(out)
	if err != nil {
		return err
	}
	return s.vacant(out)
}

func unusable(out string, err error) error {
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("%s: not a directory to write a run to: %w", out, err)
}

// Stored is what a checkpoint says of the run that it is of.
type Stored struct {
	Step      int      // steps done
	Arguments []string // as Config.Arguments was
}

// ReadStored returns what the last checkpoint in out says of its run, which must
// not be going on. It is zero where nothing is there, or only what an interrupted
// start left, so that a run that resumes starts.
func ReadStored(out string) (Stored, error) {
	release, err := claim(out)
	if errors.Is(err, fs.ErrNotExist) {
		return Stored{}, nil
	}
	if err != nil {
		return Stored{}, err
	}
	defer release()
	s, err := look(out)
	if err == nil {
		s.tidy()
		err = s.resumable(out)
	}
	if err != nil || s.dir == "" {
		return Stored{}, err
	}
	return Stored{s.state.Step, s.state.Arguments}, nil
}

// resume takes everything from the last whole checkpoint, which must be of this run.
func (r *run) resume(found *survey) error {
	dir, s := found.dir, found.state
	d, err := difference(s.Configuration, r.state.Configuration)
	if err != nil {
		return fmt.Errorf("%s: %w: remove the checkpoint and start again", filepath.Join(dir, stateName), err)
	}
	if d != "" {
		return fmt.Errorf("%s: the checkpoint is of another run: %s: resume with what it was started with, or start anew in another directory", dir, d)
	}
	if s.Step > r.Steps {
		return fmt.Errorf("%s: %d steps are done of %d: remove the checkpoint and start again", dir, s.Step, r.Steps)
	}
	scales, err := readTensors(filepath.Join(dir, tensorsName), r.tensors())
	if err != nil {
		return err
	}
	if err := r.model.SetState(scales); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	configuration := r.state.Configuration
	r.state = *s
	r.state.Configuration = configuration
	r.kept = s.Step
	return removeCheckpoints(filepath.Dir(dir), filepath.Base(dir))
}

// checkpoint writes where the run is now.
func (r *run) checkpoint() error {
	tensors := r.tensors()
	for name, v := range r.model.State() {
		tensors = append(tensors, named{scalesPrefix + name, v})
	}
	what := fmt.Sprintf("the checkpoint of step %d", r.state.Step)
	if err := storeError(writeCheckpoint(r.Out, &r.state, tensors), r.Out, what); err != nil {
		if r.kept >= 0 {
			return fmt.Errorf("%w; the one of step %d is kept, to resume from", err, r.kept)
		}
		return err
	}
	r.kept = r.state.Step
	return nil
}

// withdraw removes what a new run wrote, where its first step cannot be made at
// all: a disk that is full, shapes that the recipe does not take.
func (r *run) withdraw(err error) {
	if diverged := (*Diverged)(nil); errors.As(err, &diverged) || r.Out == "" || r.Resume || r.state.Step > 0 {
		return
	}
	_ = discard(r.Out) // the error at hand says more
	_ = os.Remove(r.Out)
}

// interrupt ends a run early.
func (r *run) interrupt() error {
	if r.Out == "" {
		return &Interrupted{r.state.Step, ""}
	}
	if err := r.checkpoint(); err != nil {
		return err
	}
	return &Interrupted{r.state.Step, r.Out}
}

// close writes the model, and then removes what was there to resume from.
func (r *run) close() error {
	if r.Out == "" {
		return nil
	}
	err := r.model.Save(r.Out, r.dtype())
	if err == nil {
		err = syncDir(r.Out)
	}
	if err := storeError(err, r.Out, "the model"); err != nil {
		return fmt.Errorf("%w; the checkpoint of step %d is kept, to resume from", err, r.kept)
	}
	return storeError(discard(r.Out), r.Out, "the end of the run")
}

// dtype returns how weights are saved: as they are multiplied.
func (r *run) dtype() safetensors.Dtype {
	if r.Recipe.Activations.Element == format.F32 {
		return safetensors.F32
	}
	return safetensors.BF16
}

// tensors lists what every checkpoint of the run holds beside its state.
func (r *run) tensors() []named {
	var all []named
	for i, p := range r.params {
		all = append(all, named{"weight/" + p.Name, p.Value.Data}, named{"m/" + p.Name, r.moments[i].m}, named{"v/" + p.Name, r.moments[i].v})
	}
	return all
}
