package decoder

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/nn"
)

// LoadOptions configures Load and Read.
type LoadOptions struct {
	Options

	// Inference keeps all weights of linear layers as they are stored, without FP32 copies. The model
	// cannot be trained, and recipes do not quantize its weights.
	Inference bool

	// Inputs says how the inputs of quantized linear layers are quantized: to bf16, or to mxint8 for products
	// of integers. With bf16, those of layers with BF16 weights are, too. Weights are reordered for
	// products with few tokens. The zero value leaves inputs in the recipe's Activations and weights in
	// their order. The option Activations has precedence where it quantizes an input.
	Inputs Inputs

	// Activations quantizes the inputs of quantized linear layers as the clients of the checkpoint
	// do: with the stored scale if there is one and the scheme uses it, otherwise each token with
	// its own scales. It quantizes keys and values to FP8 if their scales are stored (k_scale,
	// v_scale). Without Activations, all of these are in BF16.
	Activations bool
}

// Load reads a decoder from a Hugging Face directory or a GGUF file. Quantized weights, in any supported
// convention, stay as they are stored; such a model cannot be trained. Types of llama.cpp other than
// MXFP4, NVFP4 and Q8_0 are decoded to F32. An architecture, a configuration key or a value that this
// package does not compute is an error that matches errors.ErrUnsupported. Weights for inference that
// are larger than the available memory are an error that matches ErrMemory. When ctx ends, Load returns
// its error after the current tensor.
func Load(ctx context.Context, path string, o LoadOptions) (*Model, error) {
	open := hf.Open
	if gguf.Named(path) {
		open = llamacpp.Open
	}
	source, err := open(path)
	if err != nil {
		return nil, err
	}
	m, err := Read(ctx, source, o)
	return m, errors.Join(err, source.Close())
}

// Read is Load for an open checkpoint, which it does not close.
func Read(ctx context.Context, source *hf.Checkpoint, o LoadOptions) (*Model, error) {
	m, err := read(ctx, checkpoint.Read(source), o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	return m, nil
}

// ReadPlan returns the plan of a checkpoint by its configuration. It does not read the weights.
func ReadPlan(source *hf.Checkpoint) (*Plan, error) {
	plan, _, err := readPlan(checkpoint.Read(source))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	return plan, nil
}

func readPlan(model *checkpoint.Model) (*Plan, Config, error) {
	configuration := model.Source.Config
	switch {
	case configuration == nil && model.Architecture != "":
		return nil, Config{}, family.Unsupported(fmt.Errorf("the architecture %q of llama.cpp is not supported", model.Architecture))
	case configuration == nil:
		return nil, Config{}, fmt.Errorf("%s is missing: want the directory of a language model, or a GGUF file", hf.ConfigName)
	}
	f, s, err := family.Read(configuration)
	if err != nil {
		return nil, Config{}, err
	}
	plan, err := compile(f, s)
	return plan, s.Config, err
}

func read(ctx context.Context, source *checkpoint.Model, o LoadOptions) (*Model, error) {
	m, r, err := prepare(ctx, source, o)
	if err != nil {
		return nil, err
	}
	if o.Inference {
		if err := checkMemory(source, memory.Available()); err != nil {
			return nil, err
		}
	}
	return m, r.read(ctx, m, m.projections())
}

// prepare returns a model without weights, and a reader of its weights.
func prepare(ctx context.Context, source *checkpoint.Model, o LoadOptions) (*Model, reader, error) {
	plan, config, err := readPlan(source)
	if err != nil {
		return nil, reader{}, err
	}
	r := reader{model: source, options: o, family: plan.Family, pace: loadPace, places: make(map[*checkpoint.Weight]int, len(source.Weights))}
	for _, p := range source.Problems {
		if !p.Harmless() {
			return nil, r, errors.New(p.String())
		}
	}
	for i, w := range source.Weights {
		r.places[w] = i
	}
	if has := r.elements(); plan.Parameters() > 2*has { // checked before memory is allocated
		return nil, r, fmt.Errorf("config.json describes %d parameters, but the checkpoint has %d", plan.Parameters(), has)
	}
	head, err := source.DifferentHead(ctx)
	if err != nil {
		return nil, r, err
	}
	if head != nil { // as in transformers 5, which ties equal tensors only
		plan.Tied, config.TieWordEmbeddings = false, false
	}
	embedding, err := r.newEmbedding(plan)
	if err != nil {
		return nil, r, err
	}
	m, err := newModel(config, plan, o.Options, embedding)
	if err != nil {
		return nil, r, err
	}
	m.source = source
	return m, r, nil
}

// A reader loads the weights of a checkpoint into a model.
type reader struct {
	model   *checkpoint.Model
	options LoadOptions
	family  string
	places  map[*checkpoint.Weight]int // in the order of the files

	pace pace

	released *matrices // memory for weights; nil: none
}

// otherModules begin the names of tensors of multimodal models that the decoder does not use.
var otherModules = []string{"vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.",
	"vision_model.", "model.visual.", "visual."}

// stored returns the name in the checkpoint of a tensor of the model.
func (r *reader) stored(name string) string { return r.model.Family().Stored(name) }

func (r *reader) lookup(name string) (*checkpoint.Weight, bool) {
	return r.model.Lookup(r.stored(name))
}

// elements returns the number of elements of all weights.
func (r *reader) elements() int64 {
	n := int64(0)
	for _, w := range r.model.Weights {
		rows, cols := w.Matrix()
		n += int64(rows) * int64(cols)
	}
	return n
}

// A want is a tensor that a model needs.
type want struct {
	name  string
	shape []int64
}

// wants returns the tensors of a model whose projections have no weights yet.
func (m *Model) wants() (list []want) {
	seen := map[string]bool{}
	add := func(name string, shape []int64) {
		if !seen[name] {
			list, seen[name] = append(list, want{name, shape}), true
		}
	}
	add(embeddingModule+".weight", []int64{int64(m.plan.Vocabulary), int64(m.plan.Hidden)})
	for _, p := range m.Params() {
		add(p.Name, shape(p))
	}
	for _, p := range m.projections() {
		for _, q := range p.parts {
			add(q.weight(p.in))
			if p.bias {
				add(q.biases())
			}
		}
	}
	return list
}

// read reads the weights of projections and everything that is not a projection.
func (r *reader) read(ctx context.Context, m *Model, projections []*projection) error {
	if err := r.checkNames(m); err != nil {
		return err
	}
	reads, err := r.readEmbedding(m)
	if err != nil {
		return err
	}
	var stored []*projection
	for _, p := range projections {
		if !r.options.Inference && !p.stacked() && !slices.ContainsFunc(p.parts, r.quantized) {
			m.train(p)
			continue
		}
		stored = append(stored, p)
	}
	frozen, err := r.freezeAll(ctx, stored)
	if err != nil {
		return err
	}
	reads = append(reads, frozen...)
	if err := r.readCache(m); err != nil {
		return err
	}
	for _, p := range m.Params() { // the parameters that are not frozen
		reads = append(reads, r.readParam(p)...)
	}
	if err := r.runReads(ctx, reads); err != nil {
		return err
	}
	if m.plan.plusOne {
		m.addOne()
	}
	return nil
}

// addOne adds one to the weights of norms.
func (m *Model) addOne() {
	norms := []*nn.RMSNorm{m.norm}
	for _, l := range m.layers {
		norms = append(norms, l.norms()...)
	}
	for _, n := range norms {
		w := n.Weight.Value.Row(0)
		for i := range w {
			w[i]++
		}
	}
}

// computed matches tensors that follow from the configuration: the frequencies of rotary embedding in
// older checkpoints.
var computed = regexp.MustCompile(`\.self_attn\.rotary_emb\.inv_freq$`)

// checkNames returns an error if a tensor of the model is missing, or if the model does not use one of
// the checkpoint.
func (r *reader) checkNames(m *Model) error {
	used := map[string]bool{}
	for _, w := range m.wants() {
		used[r.stored(w.name)] = true
		if err := r.check(w); err != nil {
			return err
		}
	}
	for _, w := range r.model.Weights {
		if _, ok := checkpoint.CacheOwner(w.Name); ok {
			continue // readCache reads it
		}
		tied := m.plan.Tied && w.Name == r.stored("lm_head.weight")
		other := r.model.Family().Wrapped() && slices.ContainsFunc(otherModules,
			func(prefix string) bool { return strings.HasPrefix(w.Name, prefix) })
		if used[w.Name] || tied || other || computed.MatchString(w.Name) || r.model.Family().ExtraLayer(w.Name) {
			continue
		}
		return r.unexpected(w.Name)
	}
	return nil
}

func (r *reader) unexpected(name string) error {
	return fmt.Errorf("unexpected tensor %s: a model of the family %s with this configuration does not have it", name, r.family)
}

// check returns an error if a tensor is missing or has another shape or dtype.
func (r *reader) check(w want) error {
	stored, ok := r.lookup(w.name)
	switch {
	case !ok:
		return fmt.Errorf("tensor %s is missing, want shape %v", r.stored(w.name), w.shape)
	case !slices.Equal(stored.Shape, w.shape):
		return fmt.Errorf("tensor %s: got shape %v, want %v by config.json", stored.Name, stored.Shape, w.shape)
	case !stored.Dense():
		return fmt.Errorf("tensor %s: unsupported dtype %s", stored.Name, stored.Dtype)
	}
	return nil
}
