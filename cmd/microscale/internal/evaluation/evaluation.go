package evaluation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
)

// An Evaluation reads a text with a model and, for the divergence, with its original.
type Evaluation struct {
	Model     string
	Reference string         // the original, or its windows.Base; "": none
	Beside    []string       // further models, compared with the same original
	Formats   []quant.Format // formats to quantize the model to; the model is the original then

	Text    string // a file or a directory
	Method  windows.Method
	Context int // tokens of a window; 0: those of the method, or of the model if it has fewer positions

	Adjustable bool // the command has --context, which errors may name

	Activations bool            // quantize activations
	Layers      bool            // measure the errors of layers
	Head        quant.Quantizer // of the head of the quantized model; the zero format keeps it
	Cache       quant.Format    // of keys and values of the quantized model; the zero format is FP32
	Stream      string          // directory of the activations of an evaluation with one layer in memory; "": all are
	Receipts    []string        // new files for the divergence of every window from the reference: of Model, or of it and of Beside
	Against     *Receipt        // of another model, to compare with; nil: none
	Base        string          // a new file for a windows.Base of the model, without a reference; "": none
	Threads     int
	Ranks       *comm.Group // that divide the windows of statistics; nil: none
	Memory      int64       // bytes that a streaming evaluation may need by its forecast; 0: any number
	Stderr      io.Writer   // progress

	amaxes       *windows.Amaxes        // of the model; nil: none
	inputs       *calibration.Collector // of statistics of the model; nil: none
	inputFormats map[string]string      // to which clients quantize the inputs of modules
	needs        []string               // Calibration.Needs

	admit    func() error                            // what must hold before the work, on the first rank; nil: nothing
	onlyKey  bool                                    // end when the key is known
	known    func(key string) (bool, error)          // reports whether an earlier run left its result; nil: none does
	variants func(*stack) ([]windows.Stack, error)   // of Model, which is their original; nil: none
	what     string                                  // describes them, for the key
	pick     func([]windows.Window) []windows.Window // of the text; nil: all windows

	linears [][]calibration.Linear // of the model, by layer
	stored  func(module string) string
}

// Evaluated is the result of an Evaluation.
type Evaluated struct {
	Evaluation
	document document
	tokens   int
	windows  int
	seconds  float64      // of this run
	earlier  float64      // of interrupted runs that this one resumed
	size     decoder.Size // of the model
	plan     decoder.Plan
	held     held // of the model and the reference
	result   *windows.Result

	beside   []string          // identities of the models beside the first
	same     map[string]string // what receipts must share
	receipts []*Receipt        // for the files that Receipts names
	against  *Against          // with a receipt of another model

	predicted bool // what a streaming evaluation takes was printed
}

// time describes the time of all runs and, if there were several, of the last one.
func (r *Evaluated) time() string {
	if r.earlier == 0 {
		return show.DurationText(r.seconds)
	}
	return fmt.Sprintf("%s in all, %s of it in this run", show.DurationText(r.earlier+r.seconds), show.DurationText(r.seconds))
}

// held is the memory of weights in bytes.
type held struct {
	layers, rest int64
	decoded      bool // some may be decoded from a GGUF file as they are read
}

func (h *held) add(s *stack) {
	plan := s.Plan()
	layers, rest := plan.HeldBytes(s.source)
	h.layers += layers
	h.rest += rest
	h.decoded = h.decoded || s.source.GGUF != nil
}

// Run reads the text.
func (e Evaluation) Run(ctx context.Context) (_ *Evaluated, err error) {
	agreed := e.Ranks == nil
	defer func() {
		if !agreed { // the other ranks wait for this one
			_, err = e.agree("", false, err)
		}
	}()
	if e.admit != nil && e.first() {
		if err := e.admit(); err != nil {
			return nil, err
		}
	}
	if e.Reference != "" && len(e.Formats) > 0 {
		return nil, errors.New("a reference and formats exclude each other: with formats, the model is the reference")
	}
	text, base, err := e.inputsOf()
	if err != nil {
		return nil, err
	}
	if base != nil {
		defer func() { err = errors.Join(err, base.Close()) }()
	}
	model, vocabulary, err := e.open(ctx, e.Model, e.Activations)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	e.linears, e.stored = model.linears(), model.StoredModule
	if err := lowerInputs(e.linears, e.inputFormats); err != nil {
		return nil, err
	}
	if e.inputs != nil {
		e.inputs.Layers = e.linears
		if err := lacking(e.linears, e.needs); err != nil {
			return nil, err
		}
	}
	r := &Evaluated{Evaluation: e, size: model.Size(), plan: model.Plan()}
	r.held.add(model)
	run := &windows.Run{Models: []windows.Stack{model}, Local: e.Layers, Amaxes: e.amaxes, Inputs: e.inputs, Base: base,
		Threads: e.Threads}
	var original *stack
	if e.Reference != "" && base == nil {
		s, u, err := e.open(ctx, e.Reference, false)
		if original = s; err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, original.Close()) }()
		if err := vocabulary.check(u); err != nil {
			return nil, fmt.Errorf("compare %s with %s: their tokenizers differ: %w", e.Model, e.Reference, err)
		}
		run.Original = original
		r.held.add(original)
	}
	for _, path := range e.Beside {
		s, u, failed := e.open(ctx, path, e.Activations)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := vocabulary.check(u); err != nil {
			return nil, fmt.Errorf("compare %s with %s: their tokenizers differ: %w", e.Model, path, err)
		}
		if err := s.lower(e.Head, e.Cache); err != nil {
			return nil, err
		}
		content, failed := s.content(ctx)
		if failed != nil {
			return nil, failed
		}
		r.beside = append(r.beside, content)
		run.Models = append(run.Models, s)
		r.held.add(s)
	}
	if len(e.Formats) == 0 {
		if err := model.lower(e.Head, e.Cache); err != nil {
			return nil, err
		}
	}
	if err := e.addModels(run, model, r.size); err != nil {
		return nil, err
	}
	if e.Stream != "" {
		run.Stream = &windows.Stream{Dir: e.Stream}
	}
	if base != nil {
		err = r.recite(run, vocabulary)
	} else {
		err = r.read(ctx, run, text, model, vocabulary)
	}
	if err != nil {
		return nil, err
	}
	r.document.text, r.document.lines = "", nil // they may be large
	if e.Stream != "" {
		if run.Stream.Key, err = r.key(ctx, run, model, original); err != nil {
			return nil, err
		}
	}
	if e.inputs != nil {
		e.inputs.Key = digestOf(run.Stream.Key)
	}
	known := e.onlyKey
	if e.known != nil && !known && e.first() {
		if known, err = e.known(digestOf(run.Stream.Key)); err != nil {
			return nil, err
		}
	}
	if e.Ranks != nil {
		if err := r.number(run); err != nil {
			return nil, err
		}
	}
	var f forecast
	if !known {
		if err := r.share(ctx, run, original); err != nil {
			return nil, err
		}
		if f, err = r.predict(ctx, run); err != nil {
			return nil, err
		}
	}
	if e.Ranks != nil {
		agreed = true
		if known, err = e.agree(e.inputs.Key, known, nil); err != nil {
			return nil, err
		}
		run.Windows = windows.Share(run.Windows, e.Ranks.Rank(), e.Ranks.Size())
	}
	if known {
		return r, run.Discard()
	}
	if err := r.do(ctx, run, f); err != nil {
		return r, err
	}
	return r, r.exchange(ctx, run, model)
}

// inputsOf finds the text, or opens the Base that has its tokens.
func (e *Evaluation) inputsOf() (text textFiles, base *windows.Base, err error) {
	if !windows.IsBase(e.Reference) {
		text, err = findText(e.Text)
		return text, nil, err
	}
	switch {
	case len(e.Beside) > 0:
		return text, nil, fmt.Errorf("%s is compared with one model at a time: omit --beside", e.Reference)
	case e.Layers:
		return text, nil, fmt.Errorf("%s has probabilities of the original, and not its layers: --layers and --report need --reference ORIGINAL",
			e.Reference)
	case e.Text != "":
		return text, nil, fmt.Errorf("%s has the tokens of its text: omit the text", e.Reference)
	}
	base, err = windows.OpenBase(e.Reference)
	return text, base, err
}

// read reads the text, and cuts it into windows.
func (r *Evaluated) read(ctx context.Context, run *windows.Run, text textFiles, model *stack, v vocabulary) (err error) {
	if run.Stream != nil && !r.onlyKey && r.pick == nil {
		r.preview(ctx, run, text, model, v)
	}
	if r.document, err = text.read(maxText + 1); err != nil {
		return err
	}
	return r.cut(ctx, run, model, v)
}

// recite takes the windows of a Base.
func (r *Evaluated) recite(run *windows.Run, v vocabulary) (err error) {
	tokens := run.Base.Tokens()
	if r.Method, err = windows.LookupMethod(windows.LlamaCPP); err != nil {
		return err
	}
	r.Context, r.tokens = run.Base.Context, len(tokens)
	run.Windows = run.Base.Windows(v.begin())
	r.windows = len(run.Windows)
	text, err := v.decode(tokens)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Reference, err)
	}
	sum := sha256.Sum256([]byte(text))
	r.document = document{path: r.Reference, bytes: len(text), digest: hex.EncodeToString(sum[:])}
	return nil
}

// share finds what receipts must share. A receipt that does not is an error before the work.
func (r *Evaluated) share(ctx context.Context, run *windows.Run, original *stack) error {
	if len(r.Receipts) == 0 && r.Evaluation.Against == nil {
		return nil
	}
	digest, err := referenceOf(ctx, r.Reference, original)
	if err != nil {
		return err
	}
	r.same = map[string]string{"reference": digest, "text or tokenizer": tokensOf(run.Windows), "method": r.Method.Name,
		"context": fmt.Sprint(r.Context)}
	against := r.Evaluation.Against
	if against == nil {
		return nil
	}
	if err := against.matches(r.same); err != nil {
		return err
	}
	return against.comparable(len(run.Windows))
}

// exchange makes the receipts, and compares the first with that of another model.
func (r *Evaluated) exchange(ctx context.Context, run *windows.Run, model *stack) error {
	if len(r.Receipts) == 0 && r.Evaluation.Against == nil {
		return nil
	}
	var sizes []int
	for _, w := range run.Windows {
		sizes = append(sizes, w.Scored())
	}
	content, err := model.content(ctx)
	if err != nil {
		return err
	}
	contents := append([]string{content}, r.beside...)
	for i := range r.Receipts {
		r.receipts = append(r.receipts, r.receipt(i, contents[i], sizes))
	}
	if r.Evaluation.Against != nil {
		r.against, err = r.receipt(0, content, sizes).Compare(r.Evaluation.Against)
	}
	return err
}

// addModels makes the model of a run the original of its variants, or of one model for each format, if there are any.
func (e *Evaluation) addModels(run *windows.Run, model *stack, size decoder.Size) (err error) {
	if e.variants != nil {
		run.Original = model
		run.Models, err = e.variants(model)
		return err
	}
	if len(e.Formats) == 0 {
		return nil
	}
	if err := checkFormats(size, e.Formats, memory.Available()); e.Stream == "" && err != nil {
		return err
	}
	run.Original, run.Models = model, nil
	for _, f := range e.Formats {
		low, err := newFormatStack(model, f, e.Activations, e.Stream == "")
		if err == nil {
			err = low.lower(e.Head, e.Cache)
		}
		if err != nil {
			return err
		}
		run.Models = append(run.Models, low)
	}
	return nil
}

// previewBytes is the length of the beginning of a text that predicts what the text takes.
const previewBytes = 1 << 20

// preview predicts a streaming evaluation from the beginning of a long text, before the text is read.
func (r *Evaluated) preview(ctx context.Context, run *windows.Run, text textFiles, model *stack, v vocabulary) {
	if text.bytes <= 2*previewBytes || run.Stream.Held(stacksOf(run), len(r.plan.Layers)) > 0 { // or resumed: layers are missing
		return
	}
	d, err := text.read(previewBytes)
	if err != nil {
		return // what reads the text returns it
	}
	scale := float64(text.bytes) / float64(d.bytes)
	d.text = strings.ToValidUTF8(d.text, "") // the last character may be cut
	p := *r
	p.document = d
	first := *run
	if p.cut(ctx, &first, model, v) != nil {
		return
	}
	p.document.bytes = int(text.bytes)
	f := p.forecast(&first, scale)
	if pace, err := first.Measure(ctx); err == nil {
		f.predict(&first, pace, scale)
	}
	f.seconds += p.solvingSeconds(&first)
	fmt.Fprintf(r.Stderr, "%s\n", f)
	r.predicted = true
}

// open opens a model and its vocabulary.
func (e *Evaluation) open(ctx context.Context, path string, activations bool) (*stack, vocabulary, error) {
	s, err := openStack(ctx, path, decoder.LoadOptions{Inference: true, Activations: activations}, e.Threads, e.Stream != "")
	if err != nil {
		return nil, vocabulary{}, err
	}
	s.stderr = e.Stderr
	v, err := openVocabulary(s)
	if err == nil && activations && len(e.Formats) == 0 && e.Stream == "" {
		err = requireScales(s.Model, path)
	}
	if err != nil {
		return nil, vocabulary{}, errors.Join(err, s.Close())
	}
	return s, v, nil
}

// requireScales returns an error if the activations of a model are not quantized.
func requireScales(m *decoder.Model, path string) error {
	if stored, perToken, caches := m.ActivationScales(); stored+perToken+caches == 0 {
		return fmt.Errorf("quantize the activations of %s: it has no quantized weights and no KV cache scales", path)
	}
	return nil
}

// cut sets the windows of a run.
func (r *Evaluated) cut(ctx context.Context, run *windows.Run, model *stack, v vocabulary) error {
	switch positions := model.Positions(); {
	case r.Context == 0:
		r.Context = min(r.Method.Context, positions)
	case r.Context > positions:
		return fmt.Errorf("a context of %d tokens: %s has %d positions: use a shorter context", r.Context, r.Model, positions)
	}
	tokens, err := v.encodeAll(ctx, r.document, model, r.Method.Literal)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Text, err)
	}
	same := !slices.ContainsFunc(tokens, func(t int32) bool { return t != tokens[0] })
	run.Windows, err = r.Method.Windows(tokens, r.Context, v.begin())
	switch {
	case errors.Is(err, windows.ErrShort) && r.Adjustable:
		return fmt.Errorf("%s: %w, or a smaller --context", r.Text, err)
	case err != nil:
		return fmt.Errorf("%s: %w", r.Text, err)
	}
	if r.pick != nil {
		n := len(run.Windows)
		if run.Windows = r.pick(run.Windows); len(run.Windows) == 0 {
			return fmt.Errorf("%s: the text has %s of %d tokens, want at least %d: use a longer text", r.Text, show.Counted(n, "window"), r.Context,
				budgetWindows)
		}
	}
	r.tokens, r.windows = len(tokens), len(run.Windows)
	if same && (r.amaxes != nil || r.inputs != nil || r.variants != nil) {
		return fmt.Errorf("%s: all tokens of the text are the same: calibrate with a text that the model is to read", r.Text)
	}
	return nil
}
