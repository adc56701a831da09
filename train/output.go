package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/lock"
	"github.com/microscale-go/microscale/safetensors"
)

// claim makes the directory of a new run, and locks that of any against others
// until release is called.
func (r *run) claim() (release func(), err error) {
	switch {
	case r.Out == "":
		return func() {}, nil
	case r.Resume:
		return claimStored(r.Out)
	}
	if err := Vacant(r.Out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.Out, 0o777); err != nil {
		return nil, storeError(err, r.Out, "the run")
	}
	return claim(r.Out)
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

// claimStored locks the directory of a run that was interrupted.
func claimStored(out string) (release func(), err error) {
	release, err = claim(out)
	if errors.Is(err, fs.ErrNotExist) {
		err = notStored(out)
	}
	return release, err
}

func notStored(out string) error {
	return fmt.Errorf("%s: no checkpoint of a run is there: name the directory of one that was interrupted", out)
}

// open begins a run: at the start, or where the checkpoint to resume from is.
func (r *run) open() (err error) {
	r.kept = -1
	if r.state.Configuration, err = r.identity(); err != nil {
		return err
	}
	r.state.Version, r.state.Arguments = stateVersion, r.Arguments
	r.state.TrainLoss, r.state.Validation = []float64{}, []ValidationPoint{}
	switch {
	case r.Resume:
		return r.resume()
	case r.Out == "":
		return nil
	}
	if err := Vacant(r.Out); err != nil { // another run may have ended before it was locked
		return err
	}
	if err := r.checkpoint(); err != nil {
		r.withdraw(err)
		return err
	}
	return nil
}

// Vacant reports why a new run cannot write to a directory: something is there.
func Vacant(out string) error {
	at, err := latest(out)
	switch {
	case err != nil:
		return unusable(out, err)
	case at != "":
		return fmt.Errorf("%s: a run that is not done has its checkpoint there: resume it, or name another directory", out)
	}
	entries, err := os.ReadDir(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unusable(out, err)
	case len(entries) > 0:
		return fmt.Errorf("%s: the directory is not empty: name another, or remove it", out)
	}
	return nil
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
// not be going on.
func ReadStored(out string) (Stored, error) {
	release, err := claimStored(out)
	if err != nil {
		return Stored{}, err
	}
	defer release()
	_, s, err := readLatest(out)
	if err != nil {
		return Stored{}, err
	}
	return Stored{s.Step, s.Arguments}, nil
}

// readLatest reads the state of the last checkpoint in out.
func readLatest(out string) (dir string, s *state, err error) {
	if dir, err = latest(out); err != nil {
		return "", nil, unusable(out, err)
	}
	if dir == "" {
		if _, err := os.Stat(filepath.Join(out, hf.ConfigName)); err == nil {
			return "", nil, fmt.Errorf("%s: the run there is done: there is nothing to resume", out)
		}
		return "", nil, notStored(out)
	}
	s, err = readState(dir)
	return dir, s, err
}

// resume takes everything from the last checkpoint, which must be of this run.
func (r *run) resume() error {
	dir, s, err := readLatest(r.Out)
	if err != nil {
		return err
	}
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
	if err := s.checkTensors(filepath.Join(dir, tensorsName)); err != nil {
		if good := lastGood(r.Out); good != "" {
			return fmt.Errorf("%w: remove %s to resume from %s, which is good", err, dir, good)
		}
		return fmt.Errorf("%w: no other checkpoint is there, so start anew in another directory", err)
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
	_ = removeCheckpoints(filepath.Join(r.Out, checkpointFolder), "") // the error at hand says more
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

// close writes the model and removes what was there to resume from.
func (r *run) close() error {
	if r.Out == "" {
		return nil
	}
	if err := storeError(r.model.Save(r.Out, r.dtype()), r.Out, "the model"); err != nil {
		return fmt.Errorf("%w; the checkpoint of step %d is kept, to resume from", err, r.kept)
	}
	return storeError(removeCheckpoints(filepath.Join(r.Out, checkpointFolder), ""), r.Out, "the end of the run")
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
