package windows

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/tensor"
)

// A Stream evaluates layer by layer: it reads a layer, applies it to all windows, and drops it.
// The residual streams of all windows are in files of Dir, in F32, so that results have the bits
// of an evaluation window by window. The state, with the checksums of these files, is saved after each layer,
// and a Run of the same evaluation resumes there. Its files, and Dir if it created it, are removed at the end, and
// when a run fails before its first layer is complete. Files of others in Dir are left alone. Dir is locked meanwhile.
type Stream struct {
	Dir string            // is created if it does not exist; it may hold the state of an interrupted run
	Key map[string]string // identifies the evaluation: "model", "text", …, as errors name them
}

// OwnName is in the names of directories that the program chooses. An empty one is of a run that was killed when it created
// or removed it, and not the user's.
const OwnName = ".microscale-"

// own reports whether the program chose the name of the directory.
func (s *Stream) own() bool { return strings.Contains(filepath.Base(s.Dir), OwnName) }

// Begun reports whether the directory has the state of a run.
func (s *Stream) Begun() bool {
	_, err := s.readState()
	return !errors.Is(err, fs.ErrNotExist)
}

// Discard removes what a run of the Stream left that was killed, on any number of ranks, for one whose result is known: its files, or an
// empty directory.
func (r *Run) Discard() (err error) {
	if err := r.discard(); err != nil {
		return err
	}
	size := 1
	if r.Ranks != nil {
		if size = r.Ranks.Size(); r.Ranks.Rank() > 0 {
			return nil
		}
	}
	ranks, err := r.Stream.ranks()
	for _, rank := range ranks {
		if rank >= size && err == nil {
			other := *r
			other.Stream = &Stream{Dir: RankDir(r.Stream.Dir, rank), Key: r.Stream.Key}
			err = other.discard()
		}
	}
	return err
}

// discard is Discard of one rank.
func (r *Run) discard() (err error) {
	s := r.Stream
	st, err := s.readState()
	if err != nil || slices.ContainsFunc(differences(st.Key, s.Key), func(name string) bool { return name != RanksKey }) {
		if s.own() {
			_ = os.Remove(s.Dir) // fails if files are in it
		}
		return nil
	}
	held, _, err := s.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	w := newWalk(r)
	w.given = st.Given
	return w.remove()
}

// lock creates the directory and locks it. given reports whether the user had created it.
func (s *Stream) lock() (held *durable.Lock, given bool, err error) {
	entries, err := os.ReadDir(s.Dir)
	given = !errors.Is(err, fs.ErrNotExist) && !(s.own() && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !isTemporary(e) }))
	if err := os.MkdirAll(s.Dir, 0o777); err != nil {
		return nil, given, err
	}
	held, err = durable.Dir(s.Dir)
	if errors.Is(err, durable.ErrHeld) {
		err = fmt.Errorf("%s: another evaluation uses the directory: wait for it, or name another directory", s.Dir)
	}
	return held, given, err
}

// remove removes the files of the stream and, unless it was given, the directory if nothing else is in it. A run
// that is killed meanwhile leaves a state from which the next one begins again.
func (w *walk) remove() error {
	s := w.Stream
	if err := s.save(state{Key: s.Key, Layers: -1, Given: w.given}); err != nil {
		return err
	}
	var names []string
	for k := range w.stacks {
		for l := range w.stacks[0].Layers() + 1 {
			names = append(names, s.residuals(k, l))
		}
	}
	entries, err := os.ReadDir(s.Dir)
	for _, e := range entries {
		if isTemporary(e) {
			names = append(names, filepath.Join(s.Dir, e.Name()))
		}
	}
	if w.Inputs != nil {
		err = errors.Join(err, w.Inputs.Remove())
	}
	for _, name := range append(names, filepath.Join(s.Dir, streamState)) {
		if removed := os.Remove(name); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	if !w.given && err == nil {
		_ = os.Remove(s.Dir) // fails if others put files there
	}
	return err
}

// byLayer reads each layer once and applies it to all windows. If it fails, the directory keeps the
// layers that are complete, if any.
func (w *walk) byLayer(ctx context.Context) (err error) {
	held, given, err := w.Stream.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	st, err := w.Stream.begin(given)
	if err == nil {
		st, err = w.agree(st)
	}
	if err != nil {
		return err
	}
	w.layers, w.sums, w.before, w.given, w.result.Earlier = st.Layers, st.Sums, st.Before, st.Given, st.Time
	err = w.eachLayer(ctx, st)
	switch {
	case err == nil:
		if w.Inputs != nil {
			if err := w.Inputs.Join(ctx); err != nil {
				return err
			}
		}
		if w.Ranks != nil { // until the first has the statistics, all can go back
			if err := w.Ranks.Barrier(); err != nil {
				return err
			}
		}
		return w.remove()
	case ctx.Err() != nil, errors.As(err, new(*damagedFile)):
		return err
	case w.layers <= 0:
		return errors.Join(err, w.remove())
	}
	return fmt.Errorf("%w; %s keeps the completed layers: to resume, repeat the evaluation; to discard them, remove the directory", err,
		w.Stream.Dir)
}

// eachLayer embeds the windows, unless a run is resumed, applies the layers after those of st, and
// scores the windows.
func (w *walk) eachLayer(ctx context.Context, st state) error {
	if st.Layers >= 0 {
		verified := func(_ int, read func(k int) (tensor.Dense, error)) error {
			err := ctx.Err()
			for k := 0; k < len(w.stacks) && err == nil; k++ {
				if w.own(k, st.Layers) {
					_, err = read(k)
				}
			}
			return err
		}
		if err := w.eachWindow(st.Layers, verified); err != nil { // before the work
			return err
		}
		w.result.Layers = st.Errors
		if w.Amaxes != nil && st.Amaxes != nil {
			*w.Amaxes = *st.Amaxes
		}
		w.done = w.steps(st.Layers) * len(w.Windows)
	} else if err := w.embed(); err != nil {
		return err
	}
	n := w.stacks[0].Layers()
	next := w.prefetch(ctx, w.layers)
	for l := w.layers; l < n; l++ {
		loaded := <-next
		if loaded.err != nil {
			return loaded.err
		}
		if l+1 < n {
			next = w.prefetch(ctx, l+1)
		}
		if err := w.streamLayer(ctx, l, loaded.layers); err != nil {
			if l+1 < n {
				<-next // it reads the sources, which the caller closes
			}
			return err
		}
		release(loaded.layers)
	}
	if w.Inputs != nil {
		return nil // nobody reads the scores
	}
	return w.scoreAll(ctx, n)
}

// release releases layers of load: a quantized one before its original.
func release(layers []Layer) {
	for _, layer := range slices.Backward(layers) {
		if layer != nil {
			layer.Release()
		}
	}
}

// A loading is the result of load.
type loading struct {
	layers []Layer
	err    error
}

// prefetch loads layer l, if there is one, while others compute.
func (w *walk) prefetch(ctx context.Context, l int) <-chan loading {
	result := make(chan loading, 1)
	if l >= w.stacks[0].Layers() {
		return result
	}
	go func() {
		layers, err := w.load(ctx, l)
		result <- loading{layers, err}
	}()
	return result
}

// embed writes the residual streams before the first layer.
func (w *walk) embed() error {
	files, err := w.create(0)
	if err != nil {
		return err
	}
	for i := range w.Windows {
		xs, err := w.embedded(i)
		for k := 0; k < len(xs) && err == nil; k++ {
			if files[k] != nil {
				err = files[k].append(xs[k])
			}
		}
		if err != nil {
			return errors.Join(err, closeAll(files))
		}
	}
	return w.save(0, files)
}

// save finishes the files after a number of layers, and saves the state.
func (w *walk) save(layers int, files []*residuals) error {
	sums, err := finish(files)
	if err != nil {
		return err
	}
	if kept := w.kept(); kept > 0 && layers > 0 {
		w.before = append([][]uint64{w.sums}, w.before...)
		w.before = w.before[:min(kept, len(w.before))]
	}
	w.layers, w.sums = layers, sums
	return w.Stream.save(state{
		Key: w.Stream.Key, Layers: layers, Sums: sums, Before: w.before, Errors: w.result.Layers, Amaxes: w.Amaxes,
		Time: w.result.Earlier + time.Since(w.start), Given: w.given,
	})
}

// streamLayer applies layer l to all windows.
func (w *walk) streamLayer(ctx context.Context, l int, layers []Layer) error {
	to, err := w.create(l + 1)
	if err != nil {
		return err
	}
	if w.follows() {
		err = w.followLayer(ctx, l, layers[0], to)
	} else {
		err = w.eachWindow(l, func(i int, read func(k int) (tensor.Dense, error)) error {
			return w.layer(ctx, i, l, layers, streams{read, func(k int, y tensor.Dense) error { return to[k].append(y) }})
		})
		if err == nil && w.Inputs != nil {
			err = w.passes(ctx, l, layers[0], Watch{Linear: func(linear string, in, _ tensor.Dense) error { return w.Inputs.Add(linear, in) }})
		}
	}
	if err != nil {
		return errors.Join(err, closeAll(to))
	}
	if err := w.save(l+1, to); err != nil {
		return err
	}
	old := l - w.kept()
	for k := range w.stacks {
		if old < 0 || !w.own(k, old) {
			continue
		}
		if err := os.Remove(w.Stream.residuals(k, old)); err != nil && !errors.Is(err, fs.ErrNotExist) { // before this rank went back
			return err
		}
	}
	return nil
}

// passes ends the first pass of the statistics of a layer, and applies the layer once more for each further one: with little memory not all
// experts of a layer are summed at once.
func (w *walk) passes(ctx context.Context, l int, layer Layer, watch Watch) error {
	err := w.Inputs.Finish(ctx, l)
	for pass := 1; pass < w.Inputs.Passes(l) && err == nil; pass++ {
		err = w.eachWindow(l, func(_ int, read func(k int) (tensor.Dense, error)) error {
			x, err := read(0)
			for k := 1; k < len(w.stacks) && err == nil; k++ { // the stream of the model is the last
				x, err = read(k)
			}
			if err := errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			_, err = layer.Forward(x, watch)
			return err
		})
		if err == nil {
			err = w.Inputs.Finish(ctx, l)
		}
	}
	return err
}

// scoreAll scores all windows after the last layer.
func (w *walk) scoreAll(ctx context.Context, layers int) error {
	return w.eachWindow(layers, func(i int, read func(k int) (tensor.Dense, error)) error { return w.score(ctx, i, read) })
}
