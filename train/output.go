package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/safetensors"
)

// claim creates the directory of a run, and locks it until release is called.
func (r *run) claim() (release func(), err error) {
	if r.Out == "" {
		return func() {}, nil
	}
	_, err = os.Lstat(r.Out)
	switch r.created = errors.Is(err, fs.ErrNotExist); {
	case r.Resume && r.created:
		return nil, absent(r.Out)
	case !r.Resume: // before the directory is created; open checks a resumed run
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

// admit returns an error if the run cannot start or resume in the directory of s.
func (r *run) admit(s *survey) error {
	switch {
	case r.Resume:
		s.tidy()
		return s.resumable(r.Out)
	case r.Force && s.foreign != "":
		return &DirectoryError{Problem: fmt.Sprintf("replace %s: no run writes this file: remove it, or use another directory", s.foreign),
			Taken: true, Remedies: []string{"Out"}}
	case r.Force:
		return nil
	}
	return s.vacant(r.Out)
}

// absent returns the error for a run that cannot resume, since its directory does not exist. An empty one
// starts the run, for jobs that always resume: a misspelled name rarely exists.
func absent(out string) error {
	return &DirectoryError{Problem: out + ": there is no such directory: name that of an interrupted run, or create it for a new one",
		Absent: true}
}

// claim locks the directory of a run.
func claim(out string) (release func(), err error) {
	held, err := durable.Dir(out)
	if errors.Is(err, durable.ErrHeld) {
		return nil, &DirectoryError{Problem: out + ": another run is writing to it: wait for it, or use another directory", Busy: true,
			Remedies: []string{"Out"}}
	}
	if err != nil {
		return nil, directoryError(out, err)
	}
	return func() { _ = held.Close() }, nil // read only
}

// open starts or resumes a run.
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
	var s *survey
	dir, err := fromFirst(&r.Parallel, func() (string, error) {
		if s, err = look(r.Out); err == nil { // again: another run may have ended before this one got the lock
			err = r.admit(s)
		}
		switch {
		case err != nil:
			return "", err
		case r.Resume && s.dir != "":
			return s.dir, nil
		}
		return "", storeError(s.clear(r.Out, r.Force), r.Out, "the start of the run")
	})
	switch {
	case err != nil:
		return err
	case dir != "":
		err = r.resume(dir)
	default:
		err = r.start()
	}
	if err == nil && r.Resume && r.Parallel.rank() == 0 {
		e := Event{Kind: Resume, Step: r.state.Step}
		if len(s.unusable) > 0 {
			e.Err = s.unusable[0].err
		}
		r.report(e)
	}
	return err
}

// start writes the first checkpoint.
func (r *run) start() error {
	if err := r.checkpoint(); err != nil {
		r.withdraw(err)
		return err
	}
	return nil
}

// directoryError returns the error for a directory that cannot be used.
func directoryError(out string, err error) error {
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("%s: cannot write a run to it: %w", out, err)
}

// CheckOut returns the error that Run would return because of the contents of Out. For a directory
// that is taken, a damaged one and a complete run to resume, it is a *DirectoryError.
func (c *Config) CheckOut() error {
	s, err := look(c.Out)
	if err != nil {
		return err
	}
	return (&run{Config: *c}).admit(s)
}

// LastCheckpoint returns the number of steps of the last checkpoint in c.Out, and the Arguments of its
// run. It reads no other field. The run must not be active. Without a checkpoint that a resumed run
// could use or replace, LastCheckpoint returns the error that the run would.
func (c *Config) LastCheckpoint() (step int, arguments []string, err error) {
	release, err := claim(c.Out)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, absent(c.Out)
	}
	if err != nil {
		return 0, nil, err
	}
	defer release()
	s, err := look(c.Out)
	if err == nil {
		s.tidy()
		err = s.resumable(c.Out)
	}
	if err != nil || s.dir == "" {
		return 0, nil, err
	}
	return s.state.Step, s.state.Arguments, nil
}

// resume restores a complete checkpoint, which must be of this run.
func (r *run) resume(dir string) error {
	if err := r.Parallel.agree(r.restore(dir)); err != nil {
		return err
	}
	return r.Parallel.onFirst(func() error { return removeCheckpoints(filepath.Dir(dir), filepath.Base(dir)) })
}

// restore sets the state of this rank to that of a checkpoint.
func (r *run) restore(dir string) error {
	s, err := readState(dir)
	if err != nil {
		return err
	}
	d, err := difference(s.Configuration, r.state.Configuration)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, stateName), err)
	}
	if d != "" {
		return &DirectoryError{Problem: fmt.Sprintf("%s: the checkpoint is of another run: %s: resume with the same, or use another directory",
			dir, d), Remedies: []string{"Out"}}
	}
	if s.Step > r.Steps {
		return fmt.Errorf("%s: the checkpoint has %d steps, want at most %d", dir, s.Step, r.Steps)
	}
	var tensors []wanted
	for i, p := range r.params {
		rows, columns := r.place(i)
		for _, t := range r.tensors(i) {
			tensors = append(tensors, wanted{t.name, p.Name, rows, columns, p.Located(), t.data})
		}
	}
	scales, err := s.restore(dir, tensors)
	if err != nil {
		return err
	}
	if err := r.model.SetState(scales); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	s.Configuration = r.state.Configuration
	r.state = *s
	r.kept = s.Step
	return nil
}

// checkpoint writes a checkpoint of the current step.
func (r *run) checkpoint() error {
	file, tensors := r.checkpointFile()
	what := fmt.Sprintf("the checkpoint of step %d", r.state.Step)
	err := r.Parallel.writeCheckpoint(r.Out, &r.state, file, tensors)
	agreed := (*comm.AgreedError)(nil)
	switch {
	case errors.As(err, &agreed):
		err = agreed.Err
	case err != nil && r.Parallel.ranks() > 1:
		return err
	}
	if err := storeError(err, r.Out, what); err != nil {
		if r.kept >= 0 {
			err = fmt.Errorf("%w; the checkpoint of step %d is kept", err, r.kept)
		}
		return r.Parallel.agreed(err)
	}
	r.kept = r.state.Step
	return nil
}

// withdraw removes the files of a new run whose first step fails, such as for a full disk or for
// shapes that the recipe does not support, and the directory if the run created it.
func (r *run) withdraw(err error) {
	if diverged := (*Diverged)(nil); errors.As(err, &diverged) || r.Out == "" || r.Parallel.rank() > 0 || r.Resume || r.state.Step > 0 {
		return
	}
	_ = discard(r.Out) // err is more important
	if r.created {
		_ = os.Remove(r.Out)
	}
}

// interrupt writes a checkpoint and returns the error of an interrupted run.
func (r *run) interrupt() error {
	if r.Out == "" {
		return r.Parallel.agreed(&Interrupted{r.state.Step, ""})
	}
	if err := r.checkpoint(); err != nil {
		return err
	}
	return r.Parallel.agreed(&Interrupted{r.state.Step, r.Out})
}

// close writes the model, then removes the checkpoints.
func (r *run) close() error {
	if r.Out == "" {
		return nil
	}
	return r.Parallel.onFirst(func() error {
		err := r.model.Save(r.Out, r.dtype())
		if err == nil {
			err = durable.SyncDir(r.Out)
		}
		if err := storeError(err, r.Out, "the model"); err != nil {
			return fmt.Errorf("%w; the checkpoint of step %d is kept", err, r.kept)
		}
		return storeError(discard(r.Out), r.Out, "the end of the run")
	})
}

// dtype returns the dtype of saved weights: that of the recipe's Activations.
func (r *run) dtype() safetensors.Dtype {
	if r.Recipe.Activations.Element == format.F32 {
		return safetensors.F32
	}
	return safetensors.BF16
}

// checkpointFile returns the file of a checkpoint that this rank writes, and its tensors. If several ranks
// have the same tensors, the first of them writes the file.
func (r *run) checkpointFile() (file tensorFile, tensors []named) {
	p := &r.Parallel
	if r.data.rank() > 0 && !r.data.distributed() {
		return file, nil
	}
	file.Name = tensorsName
	if r.data.distributed() || r.tensor.Size() > 1 {
		file.Name = fmt.Sprintf(rankTensorsName, p.rank(), p.ranks())
		file.Rows, file.Columns = map[string]span{}, map[string]span{}
	}
	for i, o := range r.own {
		rows, columns := r.place(i)
		at := r.params[i].Located()
		if r.tensor.Rank() > 0 && r.params[i].Place == (nn.Place{}) {
			rows.To = rows.From // rank 0 has the same
		}
		if file.Rows != nil {
			file.Rows[o.Name] = rows
		}
		if columns.len() != at.Cols {
			file.Columns[o.Name] = columns
		}
		if rows.len() > 0 {
			tensors = append(tensors, r.tensors(i)...)
		}
	}
	if p.rank() == 0 {
		for name, v := range r.model.State() {
			tensors = append(tensors, named{scalesPrefix + name, v})
		}
	}
	return file, tensors
}

// tensors returns the tensors of parameter i in a checkpoint: the rows of this rank.
func (r *run) tensors(i int) []named {
	p := r.own[i]
	return []named{{"weight/" + p.Name, p.Value.Data}, {"m/" + p.Name, r.moments[i].m}, {"v/" + p.Name, r.moments[i].v}}
}
