package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// RunOptions say how a plan is carried out. None of them changes the result.
type RunOptions struct {
	Force          bool              // replace a checkpoint at the destination when the result is whole
	Resume         bool              // go on where an earlier run ended, and leave what is done where this one fails
	AllowNonFinite bool              // go on where the source holds NaN or Inf
	Threads        int               // goroutines; 0: one per processor
	Progress       func(bytes int64) // called as bytes of the source are read (Plan.SourceBytes); may be nil
}

// A Result is what is known of a checkpoint that was written.
type Result struct {
	Tensors  []verify.Tensor // the error of every weight against the source, in the order of the plan
	Finished bool            // an earlier run had written it all, and nothing was done; Tensors is empty but of a worker's part
	Resumed  bool            // an earlier run had written a part of it
	Warnings []string        // what the user should know or do; the checkpoint is whole
}

// Run carries the plan out. It creates dst atomically when the result is complete; on
// error, dst is unchanged. A source with NaN or Inf is an error unless that is allowed.
//
// A run that was killed leaves its files and a journal beside dst. With Resume, the
// next run continues it, to the same bytes and the same errors as one that was not
// killed. It starts if there is nothing to resume, and does nothing if dst is the
// finished result. Without Resume it removes those files, with a warning.
func (p *Plan) Run(ctx context.Context, dst string, o RunOptions) (*Result, error) {
	if o.Resume {
		why, err := p.unlike(ctx, dst, o.Threads)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		case why == "":
			out := p.outputAt(dst)
			out.dropPartial(p.fingerprint())
			return &Result{Finished: true, Warnings: out.leftover()}, nil
		case !o.Force:
			return nil, fmt.Errorf("%s: the destination exists and is not the finished result: %s: choose another name, or replace it with --force", dst, why)
		}
	}
	out, err := p.newOutput(dst, o)
	if err != nil {
		return nil, err
	}
	r := newRun(p, o)
	r.out = out
	result, err := r.carryOut(ctx)
	if damaged, ok := errors.AsType[*damagedPartial](err); ok {
		out.warnings = append(out.warnings, fmt.Sprintf("%s: %v: the run started again", out.partial, damaged))
		if err = r.discard(); err == nil {
			r = newRun(p, o)
			r.out = out
			result, err = r.carryOut(ctx)
		}
	}
	if r.journal != nil {
		if closing := r.journal.close(); err == nil {
			err = closing
		}
	}
	switch {
	case err == nil:
		result.Warnings = slices.Concat(out.warnings, p.Notes, result.Warnings)
		return result, nil
	case o.Resume, out.finished:
		out.suspend()
	default:
		out.abort()
	}
	return nil, explain(err, out, p.Bytes(), o.Resume)
}

// carryOut resumes the run where its journal ends, and completes it.
func (r *run) carryOut(ctx context.Context) (*Result, error) {
	begin, err := r.plan.beginning()
	if err != nil {
		return nil, err
	}
	if records, _, _ := readJournal(r.out.path(markerName)); r.options.Resume && !r.out.part && len(records) == 0 {
		// A run that was killed in its last moment has removed the journal.
		path := r.out.partial
		if r.out.single {
			path = r.out.path(singleName)
		}
		if why, err := r.plan.unlike(ctx, path, r.options.Threads); err == nil && why == "" {
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
	return &Result{Tensors: tensors, Resumed: r.resumed, Warnings: warnings}, err
}

// explain adds to an error what the user can do about it.
func explain(err error, out *output, size int64, resume bool) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if resume {
		return fmt.Errorf("%s: the disk is full: the result needs %d bytes there; free some, and the same command goes on from what is in %s", out.final, size, out.partial)
	}
	return fmt.Errorf("%s: the disk is full: the result needs %d bytes there; free some or choose another destination (nothing was left behind)", out.final, size)
}

// write fills the output.
func (r *run) write(ctx context.Context) ([]verify.Tensor, error) {
	p := r.plan
	for _, f := range p.Files {
		if !p.writes(f.Name) {
			continue
		}
		w, err := r.open(f)
		if err != nil {
			return nil, err
		}
		r.writers[f.Name] = w
	}
	r.skip()
	if err := r.writeKnown(); err != nil {
		return nil, err
	}
	var err error
	if p.worker.Index == 0 {
		err = r.writeOthers(ctx)
	}
	if err = errors.Join(err, syncDir(r.out.partial)); err != nil {
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
		return results, refuseNonFinite(p.Source.Source.Path, results)
	}
	return results, nil
}

// writeOthers writes what is not weights. What goes along from the source and an
// earlier run has copied is there.
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
		r.pending = append(r.pending, record{Carried: file.Name, Checksum: checksum.Of(file.Data)})
		r.lock.Unlock()
	}
	for _, other := range p.others() {
		if want, ok := r.carried[other.Name]; ok {
			if sum, err := fileSum(out.path(other.Name)); err == nil && sum == want {
				continue
			}
		}
		sum, err := out.carry(ctx, other)
		if err != nil {
			return err
		}
		r.lock.Lock()
		r.pending = append(r.pending, record{Carried: other.Name, Checksum: sum})
		r.lock.Unlock()
	}
	return nil
}

// writeKnown writes the tensors whose values the plan has.
func (r *run) writeKnown() error {
	for i, d := range r.plan.Decisions {
		for _, s := range d.Stored {
			if s.Value == nil || !r.plan.mine(i) {
				continue
			}
			begin, _ := d.Extent(s)
			if err := r.writers[d.File].WriteTensorAt(s.Name, s.Value, begin); err != nil {
				return err
			}
		}
	}
	return nil
}

// results names the sums.
func (r *run) results() []verify.Tensor {
	results := make([]verify.Tensor, 0, len(r.plan.Decisions))
	for i := range r.plan.Decisions {
		if r.plan.mine(i) {
			t := r.plan.tensor(i)
			r.sums[i].report(&t)
			results = append(results, t)
		}
	}
	return results
}

// tensor returns the row of the table of errors for a weight, without its figures.
func (p *Plan) tensor(decision int) verify.Tensor {
	d := p.Decisions[decision]
	rows, cols := d.Weight.Matrix()
	return verify.Tensor{Name: d.Weight.Name, Format: p.FormatName(d), Rows: rows, Cols: cols}
}

// refuseNonFinite fails where the source holds NaN or Inf, and says where.
func refuseNonFinite(path string, results []verify.Tensor) error {
	const most = 3
	var named []string
	tensors := 0
	for _, t := range results {
		if t.Result.NonFiniteWant == 0 {
			continue
		}
		if tensors++; tensors <= most {
			named = append(named, fmt.Sprintf("%s (%d of %d values)", t.Name, t.Result.NonFiniteWant, t.Result.Elements))
		}
	}
	if tensors == 0 {
		return nil
	}
	if tensors > most {
		named = append(named, fmt.Sprintf("and %d more tensors", tensors-most))
	}
	return fmt.Errorf("%s: NaN or Inf in %s: the checkpoint is damaged; quantize it all the same with --allow-nonfinite", path, strings.Join(named, ", "))
}
