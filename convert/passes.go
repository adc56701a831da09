package convert

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// run is one execution of a plan.
type run struct {
	plan    *Plan
	options RunOptions
	out     *output
	writers map[string]target
	layouts map[string]*safetensors.Layout // by file
	journal *journal
	scratch sync.Pool // of *batch
	factors *factors

	// The state of an earlier run, from its journal.
	start     checkpoint.Tile   // the first tile to do
	resumed   bool              // the earlier run did some work
	auxiliary map[string]uint64 // checksums of the auxiliary files that are copied
	complete  bool              // all files are closed

	groups map[string][]int // weights that share extremes, of those that are needed
	swept  map[int]extremes // of the weights whose extremes are known
	sums   []sums           // by decision

	lock     sync.Mutex      // of the fields below
	pending  []record        // of work that is not yet in the journal
	frontier checkpoint.Tile // the tiles before it are done
	synced   checkpoint.Tile // the tiles before it are done in the journal
	done     verify.Progress
}

// A target receives the bytes of the result.
type target interface {
	WriteTensorAt(name string, p []byte, off int64) error
}

func newRun(p *Plan, o RunOptions) *run {
	r := &run{plan: p, options: o, writers: map[string]target{}, layouts: p.layouts(), groups: p.groups(), factors: newFactors(p.decisions),
		swept: map[int]extremes{}, auxiliary: map[string]uint64{}}
	r.scratch.New = func() any { return &batch{} }
	_, r.done.Total = p.SourceBytes()
	for range p.decisions {
		r.sums = append(r.sums, newSums())
	}
	return r
}

// open creates a file of the result, or reopens that of an earlier run.
func (r *run) open(f file) (*safetensors.Writer, error) {
	begun := r.begun(f.name)
	if _, err := os.Lstat(r.out.fileOf(f)); begun && errors.Is(err, os.ErrNotExist) {
		return nil, &damagedPartial{f.name, "it is missing"}
	}
	w, err := r.out.create(f)
	if !errors.Is(err, os.ErrExist) || !r.options.Resume {
		return w, err
	}
	w, err = r.out.reopen(f)
	switch container, ok := errors.AsType[*safetensors.ContainerError](err); {
	case ok && begun:
		return nil, &damagedPartial{f.name, container.Problem}
	case err != nil && !begun:
		// The earlier run ended while it created the file, or before the file was on the disk.
		if err = os.Remove(r.out.fileOf(f)); err == nil {
			w, err = r.out.create(f)
		}
	}
	return w, err
}

// begun reports whether an earlier run wrote anything to a file.
func (r *run) begun(file string) bool {
	for i, d := range r.plan.decisions[:min(r.start.Weight+1, len(r.plan.decisions))] {
		if d.file == file && (i < r.start.Weight || r.start.From > 0 || r.start.FromCol > 0) && d.bytes() > 0 {
			return true
		}
	}
	return false
}

// skip counts the work of an earlier run as done.
func (r *run) skip() {
	r.frontier, r.synced = r.start, r.start
	for i, d := range r.plan.decisions {
		if _, swept := r.swept[i]; swept && r.sweeps(i) {
			r.report(stageSweep, d.StoredBytes())
		}
		if i > r.start.Weight || !r.plan.mine(i) {
			continue
		}
		for t := range r.tiling(i).Tiles(i) {
			if i == r.start.Weight && (t.From > r.start.From || t.From == r.start.From && t.FromCol >= r.start.FromCol) {
				break
			}
			r.progress(stageTiles, t)
			r.skipWritten(t)
		}
	}
}

// passes does the work of the plan: the sweep, if the format needs one, then the conversion.
func (r *run) passes(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, recorded := make(chan struct{}), make(chan error)
	go func() {
		err := r.recordUntil(stop)
		if err != nil {
			cancel()
		}
		recorded <- err
	}()
	err := r.sweepWeights(ctx, r.sweeps)
	if err == nil && len(r.swept) > 0 {
		err = r.plan.unchanged() // between the passes
	}
	if err == nil {
		err = r.convert(ctx)
	}
	close(stop)
	failed := <-recorded
	if failed != nil {
		err = failed // even if all tiles are done
	}
	if changed := r.plan.unchanged(); changed != nil {
		err = changed // the cause of other errors
	}
	// Not after a failed record: the system reports lost data only once, and a torn line must
	// stay the last. Without error, commit syncs the rest.
	if failed == nil && (err != nil && r.options.Resume || err == nil && r.out.part) {
		err = errors.Join(err, r.record())
	}
	return err
}

// The journal is written at intervals of a fraction of the elapsed time, within limits: a
// killed run loses the work of one interval. The data is synced first, in parallel with the
// work.
const (
	journalShare  = 8
	journalOften  = 250 * time.Millisecond
	journalSeldom = 2 * time.Second
)

// recordUntil writes the journal at intervals until stop is closed.
func (r *run) recordUntil(stop <-chan struct{}) error {
	for begun := time.Now(); ; {
		select {
		case <-stop:
			return nil
		case <-time.After(min(max(time.Since(begun)/journalShare, journalOften), journalSeldom)):
			if err := r.record(); err != nil {
				return err
			}
		}
	}
}

// record syncs the completed work, and then adds it to the journal.
func (r *run) record() error {
	r.lock.Lock()
	records, from, to := r.pending, r.synced, r.frontier
	r.pending = nil
	if to != from && to.Weight < len(r.plan.decisions) && (to.From > 0 || to.FromCol > 0) && to.From < r.tiling(to.Weight).Rows {
		records = append(records, r.doneRecord(to))
	}
	r.lock.Unlock()
	files := map[string]bool{}
	for i := from.Weight; i <= to.Weight && i < len(r.plan.decisions) && to != from; i++ {
		if name := r.plan.decisions[i].file; r.plan.mine(i) && !files[name] {
			files[name] = true
			if w, ok := r.writers[name].(*safetensors.Writer); ok {
				if err := w.Sync(); err != nil {
					return err
				}
			}
		}
	}
	if err := r.journal.append(records...); err != nil {
		return err
	}
	r.lock.Lock()
	r.synced = to
	r.lock.Unlock()
	return nil
}

// doneRecord returns a record that the tiles before t are done.
func (r *run) doneRecord(t checkpoint.Tile) record {
	v, s := r.plan.tensor(t.Weight), r.sums[t.Weight]
	done := &doneTiles{Weight: t.Weight, Row: t.From, Col: t.FromCol, Name: v.Name, Format: v.Format, Rows: v.Rows, Cols: v.Cols}
	done.Sums, done.Written, done.Read, done.Damping = stateOf(s.stored), slices.Clone(s.written), s.read, s.damping
	if r.searches(t.Weight) {
		done.Nearest = stateOf(s.nearest)
	}
	return record{Done: done}
}

// sweeps reports whether the run needs the extremes of a weight.
func (r *run) sweeps(decision int) bool {
	d := r.plan.decisions[decision]
	return r.groups != nil && d.action == Quantize && d.quantizer.Format.NeedsAmax() && r.groups[r.plan.group(decision)] != nil
}

// tiling returns the tiles of a weight. A copy is a flat sequence of bytes.
func (r *run) tiling(decision int) checkpoint.Tiling {
	d := r.plan.decisions[decision]
	if d.action == Copy {
		return d.Flat()
	}
	t := d.Tiling(d.Format, r.plan.formatOf(d))
	_, encoded := encoderOf(r.plan.formatOf(d))
	if d.inputs != nil || encoded && d.action == Quantize {
		t.TileCols = t.Cols // the columns of a row depend on each other
	}
	return t
}

// Stages of verify.Progress.
const (
	stageSweep = "finding maxima"
	stageTiles = "converting"
	stageAgain = "comparing the source"
)

// progress reports the bytes of a tile of the source.
func (r *run) progress(stage string, t checkpoint.Tile) {
	r.report(stage, r.tiling(t.Weight).Share(t, r.plan.decisions[t.Weight].StoredBytes()))
}

// report reports n more bytes of the source.
func (r *run) report(stage string, n int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.done.Stage, r.done.Done = stage, r.done.Done+n
	if r.options.Progress != nil {
		r.options.Progress(r.done)
	}
}

// extremes are the properties of a whole tensor that a quantizer needs.
type extremes struct {
	amax   float32
	hasNaN bool
}

func (e extremes) merge(o extremes) extremes {
	return extremes{max(e.amax, o.amax), e.hasNaN || o.hasNaN}
}

func (s *sweptAmax) extremes() extremes { return extremes{math.Float32frombits(s.Bits), s.NaN} }

// sweepGroup finds the extremes that one weight needs.
func (r *run) sweepGroup(ctx context.Context, decision int) error {
	members := r.groups[r.plan.group(decision)]
	return r.sweepWeights(ctx, func(i int) bool { return slices.Contains(members, i) })
}

// sweepWeights finds the extremes of the weights in question, unless they are known.
func (r *run) sweepWeights(ctx context.Context, asked func(i int) bool) error {
	known := map[int]bool{}
	for i := range r.swept {
		known[i] = true
	}
	seen := map[int]extremes{}
	job := checkpoint.Job[extremes]{
		Weights: len(r.plan.decisions),
		Tiling: func(i int) checkpoint.Tiling {
			if known[i] || !asked(i) {
				return checkpoint.Tiling{}
			}
			return r.tiling(i)
		},
		Work: r.extremes,
		Done: func(t checkpoint.Tile, e extremes) {
			i := t.Weight
			seen[i] = seen[i].merge(e)
			r.progress(stageSweep, t)
			if tiling := r.tiling(i); t.To == tiling.Rows && t.ToCol == tiling.Cols {
				r.lock.Lock()
				defer r.lock.Unlock()
				r.swept[i] = seen[i]
				r.pending = append(r.pending, record{Amax: &sweptAmax{i, math.Float32bits(seen[i].amax), seen[i].hasNaN}})
			}
		},
		Threads: r.options.Threads,
	}
	return job.Run(ctx)
}

// extremes returns the extremes of a tile.
func (r *run) extremes(t checkpoint.Tile) (extremes, error) {
	b := r.scratch.Get().(*batch)
	defer r.scratch.Put(b)
	w := r.plan.decisions[t.Weight].Weight
	if x, ok, err := w.ReadBF16(t, b.raw); ok || err != nil {
		b.raw = x.Data
		e := extremes{amax: quant.Amax(x, 1)}
		if err == nil && countNonFinite(x.Data, format.BF16) > 0 {
			e.hasNaN = hasNaN(x.Dense())
		}
		return e, err
	}
	x, err := w.ReadTile(t)
	return extremes{quant.Amax(x, 1), hasNaN(x)}, err
}

func hasNaN(x tensor.Dense) bool {
	return slices.ContainsFunc(x.Data, func(v float32) bool { return v != v })
}

// seen returns the extremes to quantize a weight with: those of its group.
func (r *run) seen(decision int) extremes {
	r.lock.Lock()
	defer r.lock.Unlock()
	var e extremes
	for _, i := range r.groups[r.plan.group(decision)] {
		e = e.merge(r.swept[i])
	}
	return e
}

// convert does the remaining tiles.
func (r *run) convert(ctx context.Context) error {
	job := checkpoint.Job[[]sums]{
		Weights: len(r.plan.decisions),
		Tiling: func(i int) checkpoint.Tiling {
			if !r.plan.mine(i) {
				return checkpoint.Tiling{}
			}
			return r.batches(i)
		},
		Work:    r.work,
		Start:   r.start,
		Done:    r.batchDone,
		Threads: r.options.Threads,
	}
	return job.Run(ctx)
}

// batchDone adds the errors of the tiles of a batch whose bytes are written.
func (r *run) batchDone(t checkpoint.Tile, all []sums) {
	tiling := r.tiling(t.Weight)
	r.lock.Lock()
	for _, s := range all {
		r.sums[t.Weight].merge(s)
	}
	r.frontier = t.Next(tiling.Cols)
	if r.frontier.From >= tiling.Rows {
		r.pending = append(r.pending, r.doneRecord(r.frontier))
	}
	r.lock.Unlock()
	r.progress(stageTiles, t)
}
