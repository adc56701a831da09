package windows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/tensor"
)

// A Run reads windows with a model, or with several models and the original that they were made
// from, in lock-step.
type Run struct {
	Windows  []Window
	Original Stack // nil: none; then there is one model
	Models   []Stack
	Base     *Base     // of the original that the only model is compared with, in place of Original; nil: none
	Out      io.Writer // unless nil, receives a Base of the only model, which is compared with nothing: Windows are those of llama.cpp

	Local  bool                   // measure the local errors of linear layers
	Amaxes *Amaxes                // unless nil, observes the inputs of the original, or of the only model
	Inputs *calibration.Collector // unless nil, collects statistics of these inputs, which needs Stream, and scores nothing
	Stream *Stream                // unless nil, reads each layer once and applies it to all windows
	Ranks  *comm.Group            // that read other windows at the same time, for Inputs with the same Ranks; nil: none

	Threads  int                   // goroutines; 0: one per processor
	Progress func(done, total int) // unless nil, is called after each window of each layer and of the head
}

// A Result is what a Run measures.
type Result struct {
	Scores      Scores          // of the model, without an original
	Comparisons []*Comparison   // by model, with an original or its Base
	Layers      [][]LayerErrors // by model, with an original
	Earlier     time.Duration   // that interrupted runs of a Stream took for the layers that this one did not repeat
}

// Do reads the windows. When ctx ends, it returns its error after the current window.
func (r *Run) Do(ctx context.Context) (*Result, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	w := newWalk(r)
	if r.Stream != nil {
		return w.result, w.byLayer(ctx)
	}
	return w.result, w.byWindow(ctx)
}

// check returns an error for models that cannot read the windows, or not together.
func (r *Run) check() error {
	switch {
	case len(r.Windows) == 0:
		return errors.New("evaluate: there are no windows")
	case len(r.Models) == 0 || r.Original == nil && len(r.Models) > 1:
		return fmt.Errorf("evaluate: got %s, want one, or several and their original", count(len(r.Models), "model"))
	}
	stacks := r.Models
	if r.Original != nil {
		stacks = append([]Stack{r.Original}, r.Models...)
	}
	if n := stacks[0].Vocabulary(); r.Base != nil && r.Base.Vocabulary != n {
		return fmt.Errorf("evaluate: the model has a vocabulary of %d tokens, %s has %d: only models with the same tokenizer can be compared", n,
			r.Base.file.Name(), r.Base.Vocabulary)
	}
	for _, s := range stacks {
		if got, want := s.Vocabulary(), stacks[0].Vocabulary(); got != want {
			return fmt.Errorf("evaluate: the model has a vocabulary of %d tokens, the original of %d: only models with the same tokenizer can "+
				"be compared", got, want)
		}
		if got, want := s.Layers(), stacks[0].Layers(); got != want {
			return fmt.Errorf("evaluate: the model has %d layers, the original %d: only models of the same architecture can be compared", got, want)
		}
		for i, w := range r.Windows {
			if len(w.Tokens) > s.Positions() {
				return fmt.Errorf("evaluate: window %d has %s, want at most %d, the positions of the model: use a shorter context", i+1,
					count(len(w.Tokens), "token"), s.Positions())
			}
			for _, t := range w.Tokens {
				if t < 0 || int(t) >= s.Vocabulary() {
					return fmt.Errorf("evaluate: window %d has token %d, want less than %d, the vocabulary of the model", i+1, t, s.Vocabulary())
				}
			}
		}
	}
	return nil
}

func (r *Run) newResult() *Result {
	result := &Result{}
	if r.Base != nil {
		result.Comparisons = []*Comparison{{}}
	}
	if r.Original == nil {
		return result
	}
	for _, m := range r.Models {
		result.Comparisons = append(result.Comparisons, &Comparison{})
		result.Layers = append(result.Layers, make([]LayerErrors, m.Layers()))
	}
	return result
}

// A walk is a Run in progress. Stack 0 is the original if there is one.
type walk struct {
	*Run
	stacks []Stack
	scorer scorer
	result *Result
	done   int
	total  int
	layers int        // saved as complete by a Stream
	sums   []uint64   // checksums of the residual streams after these layers, by stack
	before [][]uint64 // those of the layers before, from the last one on: state.Before
	given  bool       // the directory of the Stream existed before its first run
	start  time.Time
}

func newWalk(r *Run) *walk {
	w := &walk{Run: r, stacks: r.Models, scorer: scorer{r.Models[0].Vocabulary(), r.Threads}, result: r.newResult(), start: time.Now()}
	if r.Original != nil {
		w.stacks = append([]Stack{r.Original}, r.Models...)
	}
	layers := w.stacks[0].Layers() + 1
	if r.Inputs != nil {
		layers-- // there is no head
	}
	w.total = len(r.Windows) * w.steps(layers)
	return w
}

// steps returns the steps of a window in a number of layers, of which the head is the last: one for each stack that a fork is among.
func (w *walk) steps(layers int) (n int) {
	for l := range layers {
		n += w.stepsOf(l)
	}
	return n
}

func (w *walk) stepsOf(layer int) (n int) {
	if !w.Forked() {
		return 1
	}
	for _, s := range w.stacks {
		if layer >= firstOf(s) {
			n++
		}
	}
	return n
}

// embedded returns the residual streams of window i before the first layer. Forks have none of their own.
func (w *walk) embedded(i int) ([]tensor.Dense, error) {
	xs := make([]tensor.Dense, len(w.stacks))
	for k, s := range w.stacks {
		if !w.own(k, 0) {
			continue
		}
		x, err := s.Embed(w.Windows[i].Tokens)
		if err != nil {
			return nil, err
		}
		xs[k] = x
	}
	return xs, nil
}

// own reports whether stack k has a residual stream of its own after a number of layers, not that of the original.
func (w *walk) own(k, layers int) bool { return layers > firstOf(w.stacks[k]) }

// firstOf returns the first layer of a fork, and -1 for other stacks.
func firstOf(s Stack) int {
	if f, ok := s.(Fork); ok {
		return f.First()
	}
	return -1
}

// streams are the residual streams of a window, by stack: read returns those before a layer, and write takes those after it. Stacks
// are read and written in their order, those without a stream of their own not at all.
type streams struct {
	read  func(k int) (tensor.Dense, error)
	write func(k int, y tensor.Dense) error
}

// byWindow reads each window with all layers, which are in memory.
func (w *walk) byWindow(ctx context.Context) error {
	for i := range w.Windows {
		xs, err := w.embedded(i)
		if err != nil {
			return err
		}
		for l := range w.stacks[0].Layers() {
			layers, err := w.load(ctx, l)
			if err != nil {
				return err
			}
			if xs, err = w.inMemory(ctx, i, l, layers, xs); err != nil {
				return err
			}
		}
		if err := w.score(ctx, i, reading(xs)); err != nil {
			return err
		}
	}
	return nil
}

// load returns layer l of all stacks; nil of forks that begin later.
func (w *walk) load(ctx context.Context, l int) ([]Layer, error) {
	layers := make([]Layer, len(w.stacks))
	for k, s := range w.stacks {
		var original Layer
		if k > 0 {
			original = layers[0]
		}
		if l < firstOf(s) || k > 0 && w.follows() { // made later, by the statistics of the layer
			continue
		}
		layer, err := s.Layer(ctx, l, original)
		if err != nil {
			return nil, err
		}
		layers[k] = layer
	}
	return layers, nil
}

// reading returns what reads streams in memory.
func reading(xs []tensor.Dense) func(k int) (tensor.Dense, error) {
	return func(k int) (tensor.Dense, error) { return xs[k], nil }
}

// inMemory returns the residual streams of window i after layer l.
func (w *walk) inMemory(ctx context.Context, i, l int, layers []Layer, xs []tensor.Dense) ([]tensor.Dense, error) {
	ys := make([]tensor.Dense, len(xs))
	return ys, w.layer(ctx, i, l, layers, streams{reading(xs), func(k int, y tensor.Dense) error { ys[k] = y; return nil }})
}

// layer applies layer l to the residual streams of window i, and adds its errors.
func (w *walk) layer(ctx context.Context, i, l int, layers []Layer, s streams) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var x, y tensor.Dense // of the first stack
	for k, layer := range layers {
		if layer == nil {
			continue
		}
		in, watch := x, Watch{}
		if k == 0 {
			watch = w.watch(l, layers[1:])
		}
		var err error
		if w.own(k, l) {
			if in, err = s.read(k); err != nil {
				return err
			}
		}
		out, err := layer.Forward(in, watch)
		if err != nil {
			return fmt.Errorf("window %d: layer %d: %w", i+1, l, err)
		}
		if k == 0 {
			x, y = in, out
		} else {
			e := &w.result.Layers[k-1][l].Output
			if e.add(out, y, w.Threads); !e.finite() {
				return fmt.Errorf("window %d: layer %d: the output is NaN or infinite", i+1, l)
			}
		}
		if err := s.write(k, out); err != nil {
			return err
		}
	}
	w.step(l)
	return nil
}

// watch returns what the first stack calls for its linear layers. models are the same layers of the
// other stacks.
func (w *walk) watch(l int, models []Layer) Watch {
	watch := Watch{}
	if w.Amaxes != nil {
		watch.Cache = w.Amaxes.cache
	}
	local := w.Local && len(models) > 0
	if w.Amaxes == nil && w.Inputs == nil && !local {
		return watch
	}
	watch.Linear = func(linear string, in, out tensor.Dense) error {
		if w.Inputs != nil {
			if err := w.Inputs.Add(linear, in); err != nil {
				return err
			}
		}
		if w.Amaxes != nil {
			w.Amaxes.input(linear, in)
		}
		if !local {
			return nil
		}
		for k, m := range models {
			if m == nil {
				continue
			}
			y, err := m.Apply(linear, in)
			if err != nil {
				return err
			}
			w.result.Layers[k][l].linear(linear).add(y, out, w.Threads)
		}
		return nil
	}
	return watch
}

// score adds the scored tokens of window i. read returns the residual streams after the last layer.
func (w *walk) score(ctx context.Context, i int, read func(k int) (tensor.Dense, error)) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	x, err := read(0)
	if err == nil {
		err = w.scored(ctx, i, x, read)
	}
	if err != nil {
		return fmt.Errorf("window %d: %w", i+1, err)
	}
	w.step(w.stacks[0].Layers())
	return nil
}

// scoredTogether is the number of models whose heads are in memory at once. The logits of the original are computed once for them.
const scoredTogether = 16

// scored is score with the residual stream of the first stack, x.
func (w *walk) scored(ctx context.Context, i int, x tensor.Dense, read func(k int) (tensor.Dense, error)) error {
	window := w.Windows[i]
	targets := window.Tokens[window.First:]
	head := func(k int, x tensor.Dense, from, to int) (Head, error) { // of some scored tokens: the logits of a token predict the next one
		return w.stacks[k].Head(x.View(window.First-1+from, window.First-1+to, 0, x.Cols))
	}
	only := func(from, to int) (Head, error) { return head(0, x, from, to) }
	if w.Base != nil {
		return w.scorer.compareBase(w.result.Comparisons[0], w.Base, i, only, targets)
	}
	first, err := only(0, len(targets))
	if err != nil {
		return err
	}
	if w.Original != nil {
		return w.compared(ctx, first, targets, func(k int) (Head, error) {
			x, err := read(k)
			if err != nil {
				return nil, err
			}
			return head(k, x, 0, len(targets))
		})
	}
	if err := w.scorer.score(&w.result.Scores, first, targets); err != nil || w.Out == nil {
		return err
	}
	if i == 0 {
		if err := writeBaseHead(w.Out, w.scorer.vocabulary, w.Windows); err != nil {
			return err
		}
	}
	return w.scorer.writeBase(w.Out, only, len(targets))
}

// compared compares the models with the original, some at a time.
func (w *walk) compared(ctx context.Context, original Head, targets []int32, head func(k int) (Head, error)) error {
	for from := 1; from < len(w.stacks); from += scoredTogether {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+scoredTogether, len(w.stacks))
		heads := make([]Head, to-from)
		for k := range heads {
			var err error
			if heads[k], err = head(from + k); err != nil {
				return err
			}
		}
		if err := w.scorer.compare(w.result.Comparisons[from-1:to-1], original, heads, targets); err != nil {
			return err
		}
	}
	return nil
}

// step reports progress after a layer, or the head.
func (w *walk) step(layer int) {
	w.done += w.stepsOf(layer)
	if w.Progress != nil {
		w.Progress(w.done, w.total)
	}
}
