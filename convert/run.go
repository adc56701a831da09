package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/verify"
)

// RunOptions say how to run a plan. They do not change the result.
type RunOptions struct {
	Force          bool                  // replace a checkpoint at the destination when the result is complete
	Resume         bool                  // continue an earlier run; on error, keep the files for the next one
	AllowNonFinite bool                  // accept NaN and Inf in the source
	Threads        int                   // goroutines; 0: one per processor
	Progress       func(verify.Progress) // called by several goroutines, one call at a time; may be nil

	// Uploaded is for a Merge of parts that lack files, which their workers uploaded: it returns an error unless the
	// file of a worker is where it should be. size is −1 for a file without weights.
	Uploaded func(worker int, name string, size int64) error
}

// A Result describes a written checkpoint.
type Result struct {
	Tensors  []verify.Tensor // the error of every weight against the source, in the order of the plan
	Finished bool            // an earlier run had finished, and nothing was done; Tensors is empty unless it is a worker's part
	Resumed  bool            // an earlier run had done some of the work
	Warnings []string        // what the user should know or do; the checkpoint is complete
}

// Run executes the plan. It creates dst atomically when the result is complete; on error, dst
// is unchanged. If dst exists, the error is [fs.ErrExist] unless Force is set. The error is
// [ErrNonFinite] if the source holds NaN or Inf, unless that is allowed, and [ErrChanged] if
// the source changes meanwhile.
//
// A killed run leaves its files and a journal beside dst. With Resume, the next run continues
// it, with the same bytes and errors as an uninterrupted run. It starts from the beginning if
// there is nothing to resume, and does nothing if dst is the finished result. Without Resume,
// the next run removes those files, with a warning.
func (p *Plan) Run(ctx context.Context, dst string, o RunOptions) (*Result, error) {
	if o.Resume {
		why, err := p.unlike(ctx, dst, o)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case why == "":
			out := p.outputAt(dst)
			out.dropPartial(p.fingerprint())
			return &Result{Finished: true, Warnings: out.leftover()}, nil
		case !o.Force:
			return nil, because(fs.ErrExist, fmt.Errorf("%s: the destination exists and is not the finished result: %s: choose another name", dst,
				why))
		}
	}
	if p.lacksStatistics {
		return nil, fmt.Errorf("%s: method %s needs statistics of the inputs", dst, p.method)
	}
	if err := p.admitInexact(); err != nil {
		return nil, err
	}
	var notes []string // of the plan, and of what only the data show
	if note, err := p.source.HeadNote(ctx); err != nil {
		return nil, err
	} else if notes = p.Notes; note != "" {
		notes = append(slices.Clone(notes), note)
	}
	out, err := p.newOutput(dst, o)
	if err != nil {
		return nil, err
	}
	r := newRun(p, o)
	r.out = out
	result, err := r.execute(ctx)
	if damaged, ok := errors.AsType[*damagedPartial](err); ok {
		out.warnings = append(out.warnings, fmt.Sprintf("%s: %v: the run restarted", out.partial, damaged))
		if err = r.discard(); err == nil {
			r = newRun(p, o)
			r.out = out
			result, err = r.execute(ctx)
		}
	}
	if r.journal != nil {
		if closing := r.journal.close(); err == nil {
			err = closing
		}
	}
	switch {
	case err == nil:
		result.Warnings = slices.Concat(out.warnings, notes, result.Warnings)
		return result, nil
	case o.Resume, out.finished:
		out.suspend()
	default:
		out.abort()
	}
	return nil, explain(err, out, p.Bytes(), o.Resume)
}

// execute resumes the run after its journal, and completes it.
func (r *run) execute(ctx context.Context) (*Result, error) {
	begin, err := r.plan.beginning()
	if err != nil {
		return nil, err
	}
	if records, _, _ := readJournal(r.out.path(markerName)); r.options.Resume && !r.out.part && len(records) == 0 {
		// A run that was killed at its end has removed the journal.
		path := r.out.partial
		if r.out.single {
			path = r.out.path(singleName)
		}
		if why, err := r.plan.unlike(ctx, path, RunOptions{Threads: r.options.Threads}); err == nil && why == "" {
			warnings, err := r.out.commit()
			return &Result{Finished: true, Warnings: warnings}, err
		}
	}
	if err := r.restore(ctx, begin); err != nil {
		return nil, err
	}
	if r.complete && r.out.part {
		if err := r.checkWritten(ctx); err != nil && !errors.Is(err, os.ErrNotExist) { // a merge may have moved files
			return nil, err
		}
		r.out.unlock()
		return &Result{Tensors: r.results(), Finished: true}, nil
	}
	tensors, err := r.write(ctx)
	if err == nil {
		err = r.fillRecords()
	}
	if err != nil {
		return nil, err
	}
	warnings, err := r.out.commit()
	return &Result{Tensors: tensors, Resumed: r.resumed, Warnings: append(warnings, r.dampings()...)}, err
}

// explain adds a remedy to an error.
func explain(err error, out *output, size int64, resume bool) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if resume {
		return because(syscall.ENOSPC,
			fmt.Errorf("%s: the disk is full: the result needs %d bytes there; free some and resume the run, whose files are in %s", out.final, size,
				out.partial))
	}
	return because(syscall.ENOSPC,
		fmt.Errorf("%s: the disk is full: the result needs %d bytes there; free some or choose another destination (nothing was left behind)",
			out.final, size))
}

// write fills the output.
func (r *run) write(ctx context.Context) ([]verify.Tensor, error) {
	p := r.plan
	for _, f := range p.files {
		if !p.writes(f.name) {
			continue
		}
		w, err := r.open(f)
		if err != nil {
			return nil, err
		}
		r.writers[f.name] = w
	}
	r.skip()
	if err := r.writeKnown(); err != nil {
		return nil, err
	}
	var err error
	if p.worker.Index == 0 {
		err = r.writeOthers(ctx)
	}
	if err = errors.Join(err, durable.SyncDir(r.out.partial)); err != nil {
		if r.options.Resume {
			err = errors.Join(err, r.record())
		}
		return nil, err
	}
	if err := r.passes(ctx); err != nil {
		return nil, err
	}
	results := r.results()
	if !r.options.AllowNonFinite {
		return results, rejectNonFinite(p.source.Source.Path, results)
	}
	return results, nil
}

// writeOthers writes the files without weights. It skips auxiliary files that an earlier run
// copied.
func (r *run) writeOthers(ctx context.Context) error {
	p, out := r.plan, r.out
	made := slices.Clone(p.small)
	if p.config != nil {
		made = append(made, checkpoint.File{Name: hf.ConfigName, Data: p.config})
	}
	if p.index != nil {
		made = append(made, checkpoint.File{Name: safetensors.IndexName, Data: p.index})
	}
	for _, file := range made {
		if err := out.writeFile(file.Name, file.Data); err != nil {
			return err
		}
		r.lock.Lock()
		r.pending = append(r.pending, record{Auxiliary: file.Name, Checksum: checksum.Of(file.Data)})
		r.lock.Unlock()
	}
	for _, other := range p.others() {
		if want, ok := r.auxiliary[other.Name]; ok {
			if sum, err := fileSum(out.path(other.Name)); err == nil && sum == want {
				continue
			}
		}
		sum, err := out.copyFile(ctx, other)
		if err != nil {
			return err
		}
		r.lock.Lock()
		r.pending = append(r.pending, record{Auxiliary: other.Name, Checksum: sum})
		r.lock.Unlock()
	}
	return nil
}

// writeKnown writes the tensors whose values the plan knows.
func (r *run) writeKnown() error {
	for i, d := range r.plan.decisions {
		for _, s := range d.stored {
			if s.Value == nil || !r.plan.mine(i) {
				continue
			}
			begin, _ := d.extent(s)
			if err := r.writers[d.file].WriteTensorAt(s.Name, s.Value, begin); err != nil {
				return err
			}
		}
	}
	return nil
}

// results returns the errors of the weights.
func (r *run) results() []verify.Tensor {
	results := make([]verify.Tensor, 0, len(r.plan.decisions))
	for i := range r.plan.decisions {
		if r.plan.mine(i) {
			t := r.plan.tensor(i)
			r.sums[i].report(&t)
			results = append(results, t)
		}
	}
	return results
}

// tensor returns the description of a weight for Result.Tensors, without its errors.
func (p *Plan) tensor(decision int) verify.Tensor {
	d := p.decisions[decision]
	rows, cols := d.Matrix()
	return verify.Tensor{Name: d.Name, Format: p.formatName(d), Rows: rows, Cols: cols}
}

// rejectNonFinite returns an error if the source holds NaN or Inf.
func rejectNonFinite(path string, results []verify.Tensor) error {
	const maxNamed = 3
	var named []string
	tensors := 0
	for _, t := range results {
		if t.Result.NonFiniteWant == 0 {
			continue
		}
		if tensors++; tensors <= maxNamed {
			named = append(named, fmt.Sprintf("%s (%d of %d values)", t.Name, t.Result.NonFiniteWant, t.Result.Elements))
		}
	}
	if tensors == 0 {
		return nil
	}
	if tensors > maxNamed {
		named = append(named, fmt.Sprintf("and %d more tensors", tensors-maxNamed))
	}
	return because(ErrNonFinite, fmt.Errorf("%s: NaN or Inf in %s: the checkpoint is damaged", path, strings.Join(named, ", ")))
}
