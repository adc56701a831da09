package convert

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// run is one execution of a plan.
type run struct {
	plan    *Plan
	options RunOptions
	out     *output
	writers map[string]target
	layouts map[string]*safetensors.Layout // by file
	journal *journal
	scratch sync.Pool // of *scratch

	// What an earlier run did, from its journal.
	start    checkpoint.Tile   // the first tile that is to be done
	resumed  bool              // it is not the first of all
	carried  map[string]uint64 // checksums of the auxiliary files that are copied
	complete bool              // all files are closed

	groups map[string][]int // weights that share their extremes, of those that are needed
	swept  map[int]extremes // of weights whose amax is known
	sums   []sums           // of each decision

	lock     sync.Mutex      // of what follows
	pending  []record        // of what is done and not yet in the journal
	frontier checkpoint.Tile // where the tiles that are done end
	synced   checkpoint.Tile // where those end that the journal has
}

// A target takes the bytes of the result.
type target interface {
	WriteTensorAt(name string, p []byte, off int64) error
}

func newRun(p *Plan, o RunOptions) *run {
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	r := &run{plan: p, options: o, writers: map[string]target{}, layouts: map[string]*safetensors.Layout{}, groups: p.groups(), swept: map[int]extremes{}, carried: map[string]uint64{}}
	r.scratch.New = func() any { return &scratch{} }
	for _, f := range p.Files {
		r.layouts[f.Name] = f.Layout
	}
	for range p.Decisions {
		r.sums = append(r.sums, newSums())
	}
	return r
}

// open makes a file of the result, or opens what an earlier run left of it.
func (r *run) open(f File) (*safetensors.Writer, error) {
	begun := r.begun(f.Name)
	if _, err := os.Lstat(r.out.fileOf(f)); begun && errors.Is(err, os.ErrNotExist) {
		return nil, &damagedPartial{f.Name, "it is missing"}
	}
	w, err := r.out.create(f)
	if !errors.Is(err, os.ErrExist) || !r.options.Resume {
		return w, err
	}
	w, err = r.out.reopen(f)
	switch container, ok := errors.AsType[*safetensors.ContainerError](err); {
	case ok && begun:
		return nil, &damagedPartial{f.Name, container.Problem}
	case err != nil && !begun:
		// The earlier run ended while it made the file, or before that was on the disk.
		if err = os.Remove(r.out.fileOf(f)); err == nil {
			w, err = r.out.create(f)
		}
	}
	return w, err
}

// begun reports whether an earlier run wrote anything to a file.
func (r *run) begun(file string) bool {
	for i, d := range r.plan.Decisions[:min(r.start.Weight+1, len(r.plan.Decisions))] {
		if d.File == file && (i < r.start.Weight || r.start.From > 0 || r.start.FromCol > 0) && d.Bytes() > 0 {
			return true
		}
	}
	return false
}

// skip counts as written and read what an earlier run did.
func (r *run) skip() {
	r.frontier, r.synced = r.start, r.start
	for i, d := range r.plan.Decisions {
		if _, swept := r.swept[i]; swept && r.sweeps(i) {
			r.options.Progress(d.Weight.StoredBytes())
		}
		if i > r.start.Weight || !r.plan.mine(i) {
			continue
		}
		for t := range r.tiling(i).Tiles(i) {
			if i == r.start.Weight && (t.From > r.start.From || t.From == r.start.From && t.FromCol >= r.start.FromCol) {
				break
			}
			r.progress(t)
			r.written(t, d)
		}
	}
}

// passes does the work of the plan: the sweep where the format needs one, then
// the conversion.
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
	err := r.sweep(ctx)
	if err == nil && len(r.swept) > 0 {
		err = r.plan.unchanged() // between the passes
	}
	if err == nil {
		err = r.convert(ctx)
	}
	close(stop)
	failed := <-recorded
	if failed != nil {
		err = failed // also where all tiles were done meanwhile
	}
	if changed := r.plan.unchanged(); changed != nil {
		err = changed // whatever else it led to
	}
	// Not after a record that failed: the system tells once of data that did not reach
	// the disk, and a line that is torn must stay the last.
	if failed == nil && (err != nil && r.options.Resume || err == nil && r.out.part) { // else the end is near, which syncs what is left
		err = errors.Join(err, r.record())
	}
	return err
}

// The journal learns what is done after a share of the time that has passed, within
// limits: that is what a run that is killed has lost. What was written is on the
// disk first, which goes on beside the work.
const (
	journalShare  = 8
	journalOften  = 250 * time.Millisecond
	journalSeldom = 2 * time.Second
)

// recordUntil writes the journal again and again, until stop is closed.
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

// record makes what is done durable, and then writes it to the journal.
func (r *run) record() error {
	r.lock.Lock()
	records, from, to := r.pending, r.synced, r.frontier
	r.pending = nil
	if to != from && to.Weight < len(r.plan.Decisions) && (to.From > 0 || to.FromCol > 0) && to.From < r.tiling(to.Weight).Rows {
		records = append(records, r.doneRecord(to))
	}
	r.lock.Unlock()
	files := map[string]bool{}
	for i := from.Weight; i <= to.Weight && i < len(r.plan.Decisions) && to != from; i++ {
		if name := r.plan.Decisions[i].File; r.plan.mine(i) && !files[name] {
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

// doneRecord says that the tiles before a place are done.
func (r *run) doneRecord(t checkpoint.Tile) record {
	v, s := r.plan.tensor(t.Weight), r.sums[t.Weight]
	done := &doneTiles{Weight: t.Weight, Row: t.From, Col: t.FromCol, Name: v.Name, Format: v.Format, Rows: v.Rows, Cols: v.Cols}
	done.Sums, done.Written, done.Read = stateOf(s.stored), slices.Clone(s.written), s.read
	if r.searches(t.Weight) {
		done.Nearest = stateOf(s.nearest)
	}
	return record{Done: done}
}

// sweeps reports whether the extremes of a weight are needed.
func (r *run) sweeps(decision int) bool {
	return r.groups != nil && r.plan.Decisions[decision].Action == Quantize && r.groups[r.plan.group(decision)] != nil
}

// tiling returns the tiles of a weight: of a copy, those of a line of bytes.
func (r *run) tiling(decision int) checkpoint.Tiling {
	d := r.plan.Decisions[decision]
	if d.Action == Copy {
		return d.Weight.Line()
	}
	return d.Weight.Tiling(d.Weight.Format, r.plan.Format)
}

// progress reports the bytes of a tile of the source.
func (r *run) progress(t checkpoint.Tile) {
	r.options.Progress(r.tiling(t.Weight).Share(t, r.plan.Decisions[t.Weight].Weight.StoredBytes()))
}

// extremes are what a quantizer must know of a whole tensor.
type extremes struct {
	amax   float32
	hasNaN bool
}

func (e extremes) merge(o extremes) extremes {
	return extremes{max(e.amax, o.amax), e.hasNaN || o.hasNaN}
}

func (s *sweptAmax) extremes() extremes { return extremes{math.Float32frombits(s.Bits), s.NaN} }

// sweep finds the extremes of every weight that needs them and whose are not known.
func (r *run) sweep(ctx context.Context) error {
	return r.sweepWeights(ctx, r.sweeps)
}

// sweepGroup finds the extremes that one weight needs.
func (r *run) sweepGroup(decision int) error {
	members := r.groups[r.plan.group(decision)]
	return r.sweepWeights(context.Background(), func(i int) bool { return slices.Contains(members, i) })
}

func (r *run) sweepWeights(ctx context.Context, asked func(i int) bool) error {
	known := map[int]bool{}
	for i := range r.swept {
		known[i] = true
	}
	seen := map[int]extremes{}
	job := checkpoint.Job[extremes]{
		Weights: len(r.plan.Decisions),
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
			r.progress(t)
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

// extremes returns those of a tile.
func (r *run) extremes(t checkpoint.Tile) (extremes, error) {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	w := r.plan.Decisions[t.Weight].Weight
	if x, ok, err := w.ReadBF16(t, s.raw); ok || err != nil {
		s.raw = x.Data
		e := extremes{amax: quant.AmaxBF16(x, 1)}
		if err == nil && tensor.CountNonFinite(x.Data, format.BF16) > 0 {
			e.hasNaN = hasNaN(x.Dense())
		}
		return e, err
	}
	x, err := w.ReadTile(t)
	return extremes{quant.Amax(x, 1), hasNaN(x)}, err
}

func hasNaN(x tensor.Dense) bool {
	return format.MaxBits(x.Data) > math.Float32bits(float32(math.Inf(1)))
}

// seen returns the extremes that a weight is quantized with: those of all whose
// global scale it shares.
func (r *run) seen(decision int) extremes {
	r.lock.Lock()
	defer r.lock.Unlock()
	var e extremes
	for _, i := range r.groups[r.plan.group(decision)] {
		e = e.merge(r.swept[i])
	}
	return e
}

// convert does the tiles that are not done.
func (r *run) convert(ctx context.Context) error {
	job := checkpoint.Job[[]sums]{
		Weights: len(r.plan.Decisions),
		Tiling: func(i int) checkpoint.Tiling {
			if !r.plan.mine(i) {
				return checkpoint.Tiling{}
			}
			return r.units(i)
		},
		Work:    r.work,
		Start:   r.start,
		Done:    r.done,
		Threads: r.options.Threads,
	}
	return job.Run(ctx)
}

// done takes the errors of the tiles of a unit whose bytes are written.
func (r *run) done(t checkpoint.Tile, all []sums) {
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
	r.progress(t)
}
