package evaluate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/microscale-go/microscale/internal/lock"
	"github.com/microscale-go/microscale/tensor"
)

// A Stream evaluates layer by layer: it reads a layer, applies it to all windows, and drops it.
// The residual streams of all windows are in files of Dir, in F32, so that results have the bits
// of an evaluation window by window. The state is saved after each layer, and a Run of the same
// evaluation resumes there. Dir is removed at the end, and when a run fails before its first layer is
// complete. It is locked meanwhile.
type Stream struct {
	Dir string // is created if it does not exist; it may hold the state of an interrupted run
	Key string // describes the evaluation: models, text, windows and options
}

// streamState is the name of the file with the state of a stream.
const streamState = "state.json"

// newState ends the name of a state that is being written.
const newState = ".new"

// A state is what a stream saves after a layer.
type state struct {
	Key    string          `json:"key"`
	Layers int             `json:"layers"` // that all windows passed
	Errors [][]LayerErrors `json:"errors"`
	Amaxes *Amaxes         `json:"amaxes,omitempty"`
	Time   time.Duration   `json:"time"`            // of all runs until then
	Given  bool            `json:"given,omitempty"` // the directory existed before the first run
}

// residuals returns the file of the residual stream of a stack after a number of layers.
func (s *Stream) residuals(stack, layers int) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%d-%d.f32", stack, layers))
}

// lock creates the directory and locks it. given reports whether the directory existed.
func (s *Stream) lock() (held *lock.Lock, given bool, err error) {
	_, err = os.Lstat(s.Dir)
	given = err == nil
	if err := os.MkdirAll(s.Dir, 0o777); err != nil {
		return nil, given, err
	}
	held, err = lock.Dir(s.Dir)
	if errors.Is(err, lock.ErrHeld) {
		err = fmt.Errorf("%s: another evaluation uses the directory: wait for it, or name another directory", s.Dir)
	}
	return held, given, err
}

// remove removes the files and, unless it was given, the directory.
func (s *Stream) remove(given bool) error {
	if !given {
		return os.RemoveAll(s.Dir)
	}
	entries, err := os.ReadDir(s.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
	}
	return err
}

// begin writes the first state, or reads that of an interrupted run.
func (s *Stream) begin(given bool) (st state, resumed bool, err error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, streamState))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		others, err := os.ReadDir(s.Dir)
		others = slices.DeleteFunc(others, func(e fs.DirEntry) bool { return e.Name() == streamState+newState }) // the first one, interrupted
		if err == nil && len(others) > 0 {
			err = fmt.Errorf("%s: the directory is not empty and holds no interrupted evaluation: remove it, or name another", s.Dir)
		}
		if err == nil {
			err = s.save(state{Key: s.Key, Layers: -1, Given: given})
		}
		return state{Given: given}, false, err
	case err != nil:
		return st, false, err
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, false, fmt.Errorf("%s: not the state of an evaluation: %w", filepath.Join(s.Dir, streamState), err)
	}
	if st.Key != s.Key {
		return st, false, fmt.Errorf("%s: holds an interrupted evaluation of something else: remove it, or name another directory", s.Dir)
	}
	if st.Layers < 0 { // interrupted before the first layer
		return state{Given: st.Given}, false, nil
	}
	return st, true, nil
}

// Completed returns the number of layers that interrupted runs of the same evaluation completed.
func (s *Stream) Completed() int {
	var st state
	data, err := os.ReadFile(filepath.Join(s.Dir, streamState))
	if err != nil || json.Unmarshal(data, &st) != nil || st.Key != s.Key {
		return 0 // Do reports the error
	}
	return max(0, st.Layers)
}

// save replaces the state.
func (s *Stream) save(st state) error {
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	name := filepath.Join(s.Dir, streamState)
	if err := os.WriteFile(name+newState, data, 0o666); err != nil {
		return err
	}
	return os.Rename(name+newState, name)
}

// byLayer reads each layer once and applies it to all windows. If it fails, the directory keeps the
// layers that are complete, if any.
func (w *walk) byLayer(ctx context.Context) (err error) {
	held, given, err := w.Stream.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	st, resumed, err := w.Stream.begin(given)
	if err != nil {
		return err
	}
	w.layers, w.given, w.result.Earlier = st.Layers, st.Given, st.Time
	err = w.eachLayer(ctx, st, resumed)
	switch {
	case err == nil:
		return w.Stream.remove(w.given)
	case ctx.Err() != nil:
		return err
	case w.layers == 0:
		return errors.Join(err, w.Stream.remove(w.given))
	}
	return fmt.Errorf("%w; %s keeps the completed layers: to resume, repeat the evaluation; to discard them, remove the directory", err, w.Stream.Dir)
}

// eachLayer embeds the windows, unless a run is resumed, applies the layers after those of st, and
// scores the windows.
func (w *walk) eachLayer(ctx context.Context, st state, resumed bool) error {
	if resumed {
		w.result.Layers = st.Errors
		if w.Amaxes != nil && st.Amaxes != nil {
			*w.Amaxes = *st.Amaxes
		}
		w.done = st.Layers * len(w.Windows)
	} else if err := w.embed(); err != nil {
		return err
	}
	n := w.stacks[0].Layers()
	next := w.prefetch(ctx, st.Layers)
	for l := st.Layers; l < n; l++ {
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
		for _, layer := range slices.Backward(loaded.layers) { // a quantized layer before its original
			layer.Release()
		}
	}
	return w.scoreAll(ctx, n)
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
			err = files[k].append(xs[k])
		}
		if err != nil {
			return errors.Join(err, closeAll(files))
		}
	}
	if err := closeAll(files); err != nil {
		return err
	}
	return w.save(0)
}

// save saves the state after a number of layers.
func (w *walk) save(layers int) error {
	w.layers = layers
	return w.Stream.save(state{Key: w.Stream.Key, Layers: layers, Errors: w.result.Layers, Amaxes: w.Amaxes, Time: w.result.Earlier + time.Since(w.start), Given: w.given})
}

// streamLayer applies layer l to all windows.
func (w *walk) streamLayer(ctx context.Context, l int, layers []Layer) error {
	from, err := w.open(l)
	if err != nil {
		return err
	}
	to, err := w.create(l + 1)
	if err != nil {
		return errors.Join(err, closeAll(from))
	}
	err = w.eachWindow(from, func(i int, xs []tensor.Dense) error {
		ys, err := w.layer(ctx, i, l, layers, xs)
		if err != nil {
			return err
		}
		for k, y := range ys {
			if err := to[k].append(y); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, closeAll(from), closeAll(to)); err != nil {
		return err
	}
	if err := w.save(l + 1); err != nil {
		return err
	}
	for k := range w.stacks {
		if err := os.Remove(w.Stream.residuals(k, l)); err != nil {
			return err
		}
	}
	return nil
}

// scoreAll scores all windows after the last layer.
func (w *walk) scoreAll(ctx context.Context, layers int) error {
	from, err := w.open(layers)
	if err != nil {
		return err
	}
	err = w.eachWindow(from, func(i int, xs []tensor.Dense) error { return w.score(ctx, i, xs) })
	return errors.Join(err, closeAll(from))
}

// eachWindow calls f with the residual streams of every window.
func (w *walk) eachWindow(from []*residuals, f func(i int, xs []tensor.Dense) error) error {
	for i, window := range w.Windows {
		xs := make([]tensor.Dense, len(from))
		for k, file := range from {
			x, err := file.next(len(window.Tokens))
			if err != nil {
				return err
			}
			xs[k] = x
		}
		if err := f(i, xs); err != nil {
			return err
		}
	}
	return nil
}

// residuals is a file with the residual streams of all windows of a stack, in F32, in order.
type residuals struct {
	file *os.File
	cols int
	rest int // values after the last whole column
	buf  []byte
}

func (w *walk) create(layers int) ([]*residuals, error) {
	return w.files(layers, os.Create)
}

// open opens files that create made. An incomplete one is an error.
func (w *walk) open(layers int) ([]*residuals, error) {
	files, err := w.files(layers, os.Open)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.cols == 0 || f.rest != 0 {
			return nil, errors.Join(fmt.Errorf("%s: the file is incomplete: remove its directory and begin again", f.file.Name()), closeAll(files))
		}
	}
	return files, nil
}

// files opens the residual streams of all stacks after a number of layers.
func (w *walk) files(layers int, open func(name string) (*os.File, error)) ([]*residuals, error) {
	total := 0
	for _, window := range w.Windows {
		total += len(window.Tokens)
	}
	var files []*residuals
	for k := range w.stacks {
		f, err := open(w.Stream.residuals(k, layers))
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close(), closeAll(files))
		}
		values := int(info.Size()) / 4
		files = append(files, &residuals{file: f, cols: values / total, rest: values % total})
	}
	return files, nil
}

func (r *residuals) append(x tensor.Dense) (err error) {
	r.buf = r.buf[:0]
	for i := range x.Rows {
		if r.buf, err = binary.Append(r.buf, binary.LittleEndian, x.Row(i)); err != nil {
			return err
		}
	}
	_, err = r.file.Write(r.buf)
	return err
}

func (r *residuals) next(rows int) (tensor.Dense, error) {
	x := tensor.New(rows, r.cols)
	return x, binary.Read(r.file, binary.LittleEndian, x.Data)
}

func closeAll(files []*residuals) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.file.Close())
	}
	return errors.Join(errs...)
}
