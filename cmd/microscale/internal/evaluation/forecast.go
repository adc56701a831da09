package evaluation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
)

// A forecast is what a streaming evaluation will take.
type forecast struct {
	memory     float64 // bytes, of the process at its peak
	disk       float64 // bytes, of the residual streams of all ranks, as if they were on one filesystem
	operations float64
	seconds    float64 // of the layers that are not complete, and of the head
}

// forecast predicts a run of a model and of others of its size, whose text is scale times as long as that of the
// windows of run.
//
//	memory = program + embedding, head + 2·(a layer of each model) + matrices of a window + tokens + statistics of a layer
//
// or between the windows, without their matrices, while statistics are written and factors made,
// or the memory while the text is encoded, if that is more. Two layers are in memory, because the next one is read
// while one computes. The factor garbage is that of flags.BoundGarbage, and what is lost to fragments. Statistics are held from layer to
// layer, and make none.
func (r *Evaluated) forecast(run *windows.Run, scale float64) forecast {
	const program, garbage, element = 32 << 20, 1.25, 4
	n, plan := r.size, r.plan
	largest, widest := 0, 0
	for _, w := range n.Linear {
		largest, widest = max(largest, w[0]*w[1]), max(widest, w[1])
	}
	stacks, layers := stacksOf(run), len(plan.Layers)
	tokens, window := 0, 0
	for _, w := range run.Windows {
		tokens += len(w.Tokens)
		window = max(window, len(w.Tokens))
	}
	width := 4 * plan.Hidden // residual streams and norms
	for _, l := range plan.Layers {
		width = max(width, 4*plan.Hidden+3*l.MLP.Width+2*l.Attention.HeadDim*(l.Attention.Heads+2*l.Attention.KVHeads))
	}
	var f forecast
	rest := int(r.held.rest)
	weights := 2*int(r.held.layers)/layers + rest
	for _, format := range r.Formats {
		weights += 2 * (bytesIn(n, format) - 2*n.Other) / layers
	}
	if run.Forked() { // the streams of two models are in memory in the layers, of several more before the head
		stacks = min(stacks, 4)
	}
	weight, between := element*largest*r.copies(run), 0 // of a weight and its copies, in windows and between them
	if run.Inputs != nil && run.Inputs.Pairs {          // one model reads a window after the other, and the inputs of the first are kept
		stacks, width, between = 1, width+plan.Hidden*3+widest, weight
	}
	temporary := weight + element*window*(width*stacks+min(4096, plan.Vocabulary)*(stacks+1))
	all := scale * float64(tokens)
	encoding := garbage*(program+1.5*float64(rest)) + // copies were made while they were read
		float64(r.document.bytes) + 2*element*all // tokens of the tokenizer, and of the windows
	f.memory = max(encoding, garbage*(program+float64(weights)+float64(temporary))+element*all)
	streams := element * all * float64(plan.Hidden*stacksOf(run))
	kept := float64(r.ranks() - 1) // earlier layers
	f.disk = (kept + 2) * streams
	f.operations = scale * r.operations(run)
	if c := run.Inputs; c != nil {
		if r.Memory > 0 {
			c.Memory = max(1, r.Memory-int64(f.memory))
		}
		summing, after := c.Bytes(window)
		f.memory = max(f.memory+float64(summing), f.memory-garbage*float64(temporary-between)+float64(after))
		file := float64(c.FileBytes())
		written := file // of the layers, one of them twice while its factors are made
		if c.Pairs {
			written += file / float64(layers)
		}
		f.disk = max(f.disk+written, (kept+1)*streams+2*file) // at the end all of them twice
		f.operations += all * c.Operations()
	}
	return f
}

// copies returns how many copies of a weight in float32 are in memory while a layer is read: where it is quantized, its values,
// those that its codes have and what their product packs.
func (r *Evaluated) copies(run *windows.Run) int {
	switch {
	case len(r.Formats) > 0 || run.Inputs != nil && run.Inputs.Pairs:
		return 3
	case r.held.decoded:
		return 1
	}
	return 0
}

// predict sets the time of a run whose text is scale times as long as that of the windows of run. It assumes that all
// layers take as long as the first one, for which the first window was measured, and that layers are read while
// others compute.
func (f *forecast) predict(run *windows.Run, p windows.Pace, scale float64) {
	tokens, scored := 0.0, 0.0
	for _, w := range run.Windows {
		tokens += scale * float64(len(w.Tokens))
		scored += scale * float64(w.Scored())
	}
	first := run.Windows[0]
	passes, heads := run.Passes()
	layers := float64(run.Models[0].Layers() - run.Stream.Completed())
	layer := p.Layer.Seconds() * tokens / float64(len(first.Tokens))
	if run.Ranks != nil { // a rank begins a layer when the one before it has completed its windows
		n := float64(run.Ranks.Size())
		layer *= (1 + (n-1)/max(1, layers)) / n
	}
	head := p.Head.Seconds() * scored / float64(max(1, first.Scored()))
	f.seconds = p.Load.Seconds() + max(passes*layer, layers*p.Load.Seconds()) + heads*head
}

// checkDisk returns an error if the filesystem of a directory has less space than the residual streams need besides
// the bytes that interrupted runs hold. The directory may not exist yet.
func (f *forecast) checkDisk(dir string, held int64) error {
	const state = 1 << 20 // scores of the tokens, and unused ends of blocks
	need := f.disk + state - float64(held)
	place, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for place != filepath.Dir(place) {
		if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		place = filepath.Dir(place)
	}
	if free := freeBytes(place); need > free {
		return fmt.Errorf("evaluate layer by layer: the activations take %s, and %s has %s free: name a directory of another filesystem, or "+
			"use a shorter text",
			show.BytesText(need), show.Printable(dir), show.BytesText(free))
	}
	return nil
}

// freeBytes is a variable so that a test can simulate a full filesystem.
var freeBytes = host.FreeBytes

// stacksOf returns the number of models of a run with their original.
func stacksOf(run *windows.Run) int {
	if run.Original != nil {
		return len(run.Models) + 1
	}
	return len(run.Models)
}

// operations returns the number of multiplications and additions of a run. Attention counts all pairs of
// tokens of a window, twice those that are multiplied: its products are slower than those of linear layers.
func (r *Evaluated) operations(run *windows.Run) float64 {
	stacks := stacksOf(run)
	passes := stacks
	if run.Local {
		passes += len(run.Models)
	}
	linear, attention := 0, 0
	for _, w := range r.size.Linear {
		linear += w[0] * w[1]
	}
	for _, l := range r.plan.Layers {
		attention += 2 * l.Attention.Heads * l.Attention.HeadDim
	}
	tokens, pairs, scored := 0, 0, 0
	share := 1.0 // of the layers of the models, and of the heads
	if run.Forked() || run.Inputs != nil && run.Original != nil {
		done, _ := run.Passes()
		share = (done + float64(run.Stream.Completed())) / float64(len(r.plan.Layers)*stacks)
	}
	for _, w := range run.Windows {
		tokens += len(w.Tokens)
		pairs += len(w.Tokens) * len(w.Tokens)
		scored += w.Scored()
	}
	head := r.plan.Vocabulary * r.plan.Hidden
	if run.Inputs != nil {
		head = 0
	}
	layers := float64(linear)*float64(tokens*passes) + float64(attention)*float64(pairs*stacks)
	return 2 * (share*layers + float64(head)*float64(scored*stacks))
}

// String describes the forecast.
func (f forecast) String() string {
	return fmt.Sprintf("predicted: at most %s of memory, %s of disk, about %s (%.3g operations)",
		show.BytesText(f.memory), show.BytesText(f.disk), show.DurationText(f.seconds), f.operations)
}

// solvingSeconds predicts the time of the factors and codes of layers that are not complete, for statistics that follow quantized layers.
func (r *Evaluated) solvingSeconds(run *windows.Run) float64 {
	if run.Inputs == nil || !run.Inputs.Pairs {
		return 0
	}
	layers := float64(len(r.plan.Layers))
	return run.Inputs.SolvingSeconds(r.Formats) * (layers - float64(run.Stream.Completed())) / layers
}

// key identifies the evaluation for a run that resumes it, by the contents of what it reads: files that are copied or written again stay
// the same, and others with the same times do not.
func (r *Evaluated) key(ctx context.Context, run *windows.Run, model, reference *stack) (map[string]string, error) {
	content, err := model.content(ctx)
	if err != nil {
		return nil, err
	}
	var formats []string
	for _, f := range r.Formats {
		formats = append(formats, f.Name)
	}
	key := map[string]string{
		"model": content, "text or tokenizer": tokensOf(run.Windows), "version of this program": show.Version(),
		"context or method of windows": fmt.Sprintf("%s, %d", r.Method.Name, r.Context), "list of formats": strings.Join(formats, ","),
		"treatment of activations": fmt.Sprint(r.Activations), "kind of statistics": fmt.Sprint(r.amaxes != nil, r.statistics()),
		"choice of --layers":              fmt.Sprint(r.Layers),
		"format of the head or the cache": fmt.Sprint(r.Head, r.Cache.Name),
	}
	if r.what != "" {
		key["choice of formats or method"] = r.what
	}
	if r.beside != nil {
		key["model beside it"] = strings.Join(r.beside, " ")
	}
	if r.Reference != "" {
		key["reference"], err = referenceOf(ctx, r.Reference, reference)
	}
	return key, err
}

// digestOf returns a key with a digest for each value, "NAME DIGEST, NAME DIGEST …", so that otherRun can name what differs.
func digestOf(key map[string]string) string {
	var digests []string
	for _, name := range slices.Sorted(maps.Keys(key)) {
		sum := sha256.Sum256([]byte(key[name]))
		digests = append(digests, name+" "+hex.EncodeToString(sum[:8]))
	}
	return strings.Join(digests, ", ")
}

// tokensOf returns a digest of windows.
func tokensOf(windows []windows.Window) string {
	h := sha256.New()
	var b []byte
	for _, w := range windows {
		b, _ = binary.Append(b[:0], binary.LittleEndian, int64(w.First)) // never fails
		b, _ = binary.Append(b, binary.LittleEndian, w.Tokens)
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// lessMemory says what makes a streaming evaluation take less memory.
func (r *Evaluated) lessMemory() string {
	products := r.inputs != nil && r.inputs.Hessian
	switch {
	case products && r.Adjustable:
		return "omit --hessian, or use a smaller --context"
	case products:
		return "use --method search, or allow more"
	case r.Adjustable:
		return "use a smaller --context, or allow more"
	}
	return "allow more"
}

// predict prints what a streaming evaluation takes. More than there is of disk and is allowed of memory is an error.
func (r *Evaluated) predict(ctx context.Context, run *windows.Run) (f forecast, err error) {
	if r.Stream == "" {
		return f, nil
	}
	f = r.forecast(run, 1)
	held := int64(r.ranks())*run.Stream.Held(stacksOf(run), run.Models[0].Layers()) + run.Inputs.Held()
	if err := f.checkDisk(r.Stream, held); err != nil {
		return f, err
	}
	if !r.predicted {
		if pace, err := run.Measure(ctx); err == nil { // otherwise Do returns the error
			f.predict(run, pace, 1)
		}
		f.seconds += r.solvingSeconds(run)
		fmt.Fprintf(r.Stderr, "%s\n", f)
	}
	if limit := float64(r.Memory); limit > 0 && f.memory > limit {
		return f, fmt.Errorf("%w: the layers take %s of memory by the forecast, more than the %s allowed: %s", decoder.ErrMemory,
			show.BytesText(f.memory), show.BytesText(limit), r.lessMemory())
	}
	return f, nil
}
