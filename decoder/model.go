package decoder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// Options configures how a model computes, apart from the recipe.
type Options struct {
	FirstBF16 int // number of layers at the start that no recipe quantizes
	LastBF16  int // number of layers at the end that no recipe quantizes

	// Recompute saves only the inputs of layers in the forward pass, and recomputes each layer
	// before its backward pass, with the same bits.
	Recompute bool

	// Ranks share the layers: the model of each has a part of every matrix (tensor parallelism), and
	// all call its methods together. Config.CheckRanks has the conditions. A part cannot be saved:
	// see Whole.
	Ranks nn.Ranks `json:"-"`
}

// A Scope is the context of one pass through a model: its recipe, threads, seeds and observers.
type Scope = nn.Scope

// A Model is a decoder-only language model.
type Model struct {
	Config  Config // the sizes; of a family other than Llama, those that it shares with it
	Options Options

	// Inference is the scope of Logits and of sessions: by default the recipe f32 with a
	// goroutine for each processor.
	Inference Scope

	plan      *Plan
	source    *checkpoint.Model // that it was read from; nil: none
	embedding *nn.Embedding
	layers    []*layer
	norm      *nn.RMSNorm
	head      projection
	loss      nn.CrossEntropy

	pool      *nn.Pool  // shared by copies with the same layers
	arena     *nn.Arena // of Train, shared in the same way
	lastTrain Memory    // without masters and gradients
}

// New returns a model with random weights that depend only on the seed: normally distributed with a
// standard deviation of 0.02, divided by √(2·layers) for the projections into the residual stream.
// Norms are one.
func New(c Config, o Options, seed uint64) (*Model, error) {
	m, err := newTrainable(c, o)
	if err != nil {
		return nil, err
	}
	const std = 0.02
	residual := std / math.Sqrt(2*float64(m.Config.NumHiddenLayers))
	for _, p := range m.Params() {
		switch {
		case strings.HasSuffix(p.Name, "norm.weight"):
		case strings.HasSuffix(p.Name, "o_proj.weight"), strings.HasSuffix(p.Name, "down_proj.weight"):
			p.InitNormal(residual, seed)
		default:
			p.InitNormal(std, seed)
		}
	}
	return m, nil
}

// newTrainable returns a model that can be trained, with weights of zero.
func newTrainable(c Config, o Options) (*Model, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.CheckRanks(o.Ranks.Size(), 1); err != nil {
		return nil, err
	}
	plan, err := planOf(c)
	if err != nil {
		return nil, err
	}
	plan = plan.part(o.Ranks.Size())
	m, err := newModel(c, plan, o, plan.newEmbedding())
	if err != nil {
		return nil, err
	}
	m.train(m.projections()...)
	return m, m.divide()
}

// newModel returns a model with an embedding, projections without weights, and other matrices of zeros.
func newModel(c Config, plan *Plan, o Options, e *nn.Embedding) (*Model, error) {
	if o.FirstBF16 < 0 || o.LastBF16 < 0 || o.FirstBF16+o.LastBF16 > len(plan.Layers) {
		return nil, fmt.Errorf("model: FirstBF16 is %d and LastBF16 is %d, want numbers from 0 whose sum is at most the number of layers, %d",
			o.FirstBF16, o.LastBF16, len(plan.Layers))
	}
	f32, err := recipe.Lookup("f32")
	if err != nil {
		return nil, err
	}
	m := &Model{
		Config: c, Options: o, Inference: nn.Scope{Recipe: f32}, plan: plan,
		embedding: e,
		norm:      nn.NewRMSNorm("model.norm", plan.Hidden, float32(plan.Epsilon)),
		loss:      nn.CrossEntropy{Name: "loss"},
		pool:      new(nn.Pool),
		arena:     new(nn.Arena),
	}
	var rotary *nn.Rotary
	for i := range plan.Layers {
		a := plan.Layers[i].Attention
		if i == 0 || !reflect.DeepEqual(a.Rope, plan.Layers[i-1].Attention.Rope) {
			rotary = a.Rope.rotary(a.HeadDim, plan.Positions)
		}
		l := newLayer(plan, i, rotary)
		l.exempt = i < o.FirstBF16 || i >= len(plan.Layers)-o.LastBF16
		m.layers = append(m.layers, l)
	}
	module := "lm_head"
	if plan.Tied {
		module = embeddingModule
	}
	m.head = newProjection("", "lm_head", plan.Hidden, false, []string{module}, plan.Vocabulary)
	return m, nil
}

const embeddingModule = "model.embed_tokens"

// newEmbedding returns a table of zeros that can be trained.
func (p *Plan) newEmbedding() *nn.Embedding {
	return nn.NewEmbedding(embeddingModule, p.Vocabulary, p.Hidden)
}

// train makes projections trainable. A tied head has the weights of the embedding.
func (m *Model) train(projections ...*projection) {
	for _, p := range projections {
		p.train()
		if p == &m.head && m.plan.Tied {
			p.linear.Weight = m.embedding.Weight
		}
	}
}

// Plan returns what the model computes.
func (m *Model) Plan() Plan { return *m.plan }

// Params returns the trained tensors, each once, in the order of the computation and with the names
// of Hugging Face's checkpoints. For a quantized model (see Quantized), these are the tensors that
// are not quantized.
func (m *Model) Params() []*nn.Param {
	list := m.embedding.Params()
	for _, l := range m.layers {
		list = append(list, l.params()...)
	}
	list = append(list, m.norm.Params()...)
	if !m.plan.Tied {
		list = append(list, m.head.params()...)
	}
	return list
}

// scopes are the scope of the layers that the recipe quantizes, and that of exempt layers, the
// embedding, the last norm and the head.
type scopes struct {
	quantized, exempt nn.Scope

	caches []*nn.Cache // of the layer that computes: one for each session
}

// scopes returns the scopes of a pass under s.
func (m *Model) scopes(s nn.Scope) *scopes {
	s.Pool, s.Ranks = m.pool, m.Options.Ranks
	return &scopes{quantized: s, exempt: s.Disabled()}
}

// setArena sets the memory of activations.
func (p *scopes) setArena(a *nn.Arena) { p.quantized.Arena, p.exempt.Arena = a, a }

// forward returns the input of the head and the saved activations, which are nil under
// Scope.Inference. With one session, the tokens extend it; with several, each session gets one token.
func (m *Model) forward(p *scopes, tokens []int32, batch int, sessions ...*Session) (x tensor.Dense, saved *modelSaved, err error) {
	if batch < 1 || len(tokens) == 0 || len(tokens)%batch != 0 {
		return x, nil, fmt.Errorf("model: got %d tokens, want a positive multiple of the batch of %d sequences", len(tokens), batch)
	}
	s := &p.quantized
	if s.Lengths != nil {
		if err := m.checkPadding(s, batch, len(tokens)/batch); err != nil {
			return x, nil, fmt.Errorf("model: padding: %w", err)
		}
	}
	s.Arena.Turn()
	if x, err = m.embed(&p.exempt, tokens); err != nil {
		return x, nil, err
	}
	if !s.Inference {
		saved = &modelSaved{tokens: tokens, layers: make([]*layerSaved, len(m.layers))}
	}
	for i, l := range m.layers {
		p.caches = p.caches[:0]
		for _, session := range sessions {
			p.caches = append(p.caches, &session.caches[i])
		}
		s.Arena.Turn()
		var input *quant.Tensor
		if !s.Inference && m.Options.Recompute { // now: the layer reuses the memory of x
			if input, err = (quant.Quantizer{Format: s.Recipe.Activations}).Rowwise(x, quant.With{Threads: s.Threads}); err != nil {
				return x, nil, err
			}
		}
		var kept *layerSaved
		if x, kept, err = l.forward(l.scope(p), x, batch, p.caches); err != nil {
			return x, nil, err
		}
		if s.Inference {
			continue
		}
		saved.layers[i] = kept
		if input != nil {
			var once Memory
			if saved.layers[i].add(&once); once.Total() > saved.recomputed.Total() {
				saved.recomputed = once
			}
			saved.layers[i] = &layerSaved{input: input, batch: batch}
		}
	}
	s.Arena.Turn()
	x, kept, err := m.norm.Forward(&p.exempt, x)
	if saved != nil {
		saved.norm = kept
	}
	return x, saved, err
}

// checkPadding returns an error unless the model supports padding and Scope.Lengths are those of batch
// sequences.
func (m *Model) checkPadding(s *nn.Scope, batch, longest int) error {
	if missing := m.plan.forwardOnly(); missing != "" {
		return fmt.Errorf("%s does not support it: use sequences of equal length", missing)
	}
	return s.CheckLengths(batch, longest)
}

// embed returns the residual stream before the first layer.
func (m *Model) embed(s *nn.Scope, tokens []int32) (tensor.Dense, error) {
	x, err := m.embedding.Forward(s, tokens)
	if err == nil && m.plan.Embedding != 1 {
		factor := tensor.Of(1, 1, []float32{float32(m.plan.Embedding)})
		s.Round(factor) // as in Gemma
		nn.Scale(s, x, factor.Data[0])
	}
	return x, err
}

// modelSaved holds the activations that a forward pass saves for the backward pass.
type modelSaved struct {
	tokens     []int32
	layers     []*layerSaved
	norm       nn.Saved
	recomputed Memory // activations of the largest layer when it is recomputed
}

// backward adds the gradients of all parameters before the head for d, that of the last norm's output.
func (m *Model) backward(p *scopes, saved *modelSaved, d tensor.Dense) error {
	s := &p.quantized
	d, err := m.norm.Backward(&p.exempt, saved.norm, d)
	if err != nil {
		return err
	}
	complete(s, m.norm.Params())
	for i := len(m.layers) - 1; i >= 0; i-- {
		l, kept := m.layers[i], saved.layers[i]
		scope := l.scope(p)
		s.Arena.Turn()
		if kept.input != nil {
			again := *scope
			again.Recompute = true
			again.Arena = nil // it would overwrite d
			if _, kept, err = l.forward(&again, kept.input.Dequantize(s.Threads), kept.batch, nil); err != nil {
				return err
			}
		}
		saved.layers[i] = nil
		if d, err = l.backward(scope, kept, d); err != nil {
			return err
		}
		complete(s, l.params())
	}
	if m.embedding.Stored != nil {
		return nil // it is not trained
	}
	if err := m.embedding.Backward(&p.exempt, saved.tokens, d); err != nil {
		return err
	}
	complete(s, m.embedding.Params())
	return nil
}

// ErrQuantized is the error of training or saving a model with quantized weights.
var ErrQuantized = errors.New("the weights of the model are quantized: load the checkpoint that they were made from")

// Train runs the forward and the backward pass of one microbatch: batch contiguous sequences of equal
// length, and for each token the target that follows it. Negative targets do not count. With
// Scope.Lengths, sequences end with padding: its tokens are ignored, its targets must be negative. It returns
// the mean loss in nats per token, which may be NaN, and adds the gradients, multiplied by weight, to
// those of the parameters. It updates delayed scales after the forward and after the backward pass.
func (m *Model) Train(s *Scope, tokens, targets []int32, batch int, weight float32) (loss float64, err error) {
	if err := m.trainable(); err != nil {
		return 0, fmt.Errorf("model: train: %w", err)
	}
	if s.Inference || s.Recompute {
		return 0, errors.New("model: train: the scope is one of inference or recomputation")
	}
	if s.Recipe == (recipe.Recipe{}) {
		return 0, errors.New("model: train: the scope has no recipe: set Scope.Recipe")
	}
	p := m.scopes(*s)
	p.setArena(m.arena)
	exempt := &p.exempt
	x, saved, err := m.forward(p, tokens, batch)
	if err != nil {
		return 0, err
	}
	if err := checkPaddedTargets(s, targets); err != nil {
		return 0, fmt.Errorf("model: train: %w", err)
	}
	logits, headSaved, err := m.head.linear.Forward(exempt, x)
	if err != nil {
		return 0, err
	}
	loss, lossSaved, err := m.loss.Forward(exempt, logits, targets)
	if err != nil {
		return 0, err
	}
	m.lastTrain = m.measure(saved, headSaved, lossSaved)
	if err := m.endPass(s, false); err != nil {
		return 0, err
	}
	d, err := m.loss.Backward(exempt, lossSaved, weight)
	if err != nil {
		return 0, err
	}
	if d, err = m.head.linear.Backward(exempt, headSaved, d); err != nil {
		return 0, err
	}
	if !m.Config.TieWordEmbeddings {
		complete(s, m.head.params())
	}
	if err := m.backward(p, saved, d); err != nil {
		return 0, err
	}
	m.lastTrain.Columnwise += m.transient()
	return loss, m.endPass(s, true)
}

// checkPaddedTargets returns an error if padding has a target.
func checkPaddedTargets(s *nn.Scope, targets []int32) error {
	for i, n := range s.Lengths {
		longest := len(targets) / len(s.Lengths)
		for j, target := range targets[i*longest:][n:longest] {
			if target >= 0 {
				return fmt.Errorf("target %d of sequence %d is %d in padding, want a negative one", n+j, i, target)
			}
		}
	}
	return nil
}

// complete reports that the backward pass has added the gradients of params.
func complete(s *nn.Scope, params []*nn.Param) {
	if s.Observer.Gradients != nil {
		s.Observer.Gradients(params)
	}
}

// endPass updates delayed scales after a forward pass, or those of gradients after a backward pass.
func (m *Model) endPass(s *nn.Scope, gradients bool) error {
	var amaxes []*float32
	for _, l := range m.layers {
		amaxes = append(amaxes, l.amaxes(s, gradients)...)
	}
	if err := nn.ReduceAmaxes(s, amaxes); err != nil {
		return err
	}
	for _, l := range m.layers {
		if gradients {
			l.endBackward(s)
		} else {
			l.endForward(s)
		}
	}
	return nil
}

// Loss returns the mean loss of an inference pass in nats per token.
func (m *Model) Loss(s *Scope, tokens, targets []int32, batch int) (loss float64, err error) {
	logits, err := m.Infer(s, tokens, batch)
	if err != nil {
		return 0, err
	}
	loss, _, err = m.loss.Forward(s, logits, targets)
	return loss, err
}

// Vocabulary returns the number of token ids.
func (m *Model) Vocabulary() int { return m.Config.VocabSize }

// Positions returns the maximum number of tokens of a sequence.
func (m *Model) Positions() int { return m.Config.MaxPositionEmbeddings }

// Logits returns the logits of the next token for each token of batch contiguous sequences of equal
// length, tokens × vocabulary, under Model.Inference.
func (m *Model) Logits(ctx context.Context, tokens []int32, batch int) (tensor.Dense, error) {
	if err := ctx.Err(); err != nil {
		return tensor.Dense{}, err
	}
	s := m.Inference
	s.Pad = true
	return m.Infer(&s, tokens, batch)
}

// Infer is Logits under the scope s.
func (m *Model) Infer(s *Scope, tokens []int32, batch int) (tensor.Dense, error) {
	scope := *s
	scope.Inference = true
	p := m.scopes(scope)
	x, _, err := m.forward(p, tokens, batch)
	if err != nil {
		return tensor.Dense{}, err
	}
	return m.headLogits(&p.exempt, x)
}

// headLogits returns the logits for x, the output of the last norm, under the exempt scope.
func (m *Model) headLogits(s *nn.Scope, x tensor.Dense) (tensor.Dense, error) {
	logits, _, err := m.head.forward(s, x)
	if err != nil {
		return logits, err
	}
	m.scaleLogits(s, logits)
	return m.wholeLogits(logits)
}

// scaleLogits multiplies logits by the factor of the plan, and caps them.
func (m *Model) scaleLogits(s *nn.Scope, logits tensor.Dense) {
	if m.plan.Logits != 1 {
		nn.Scale(s, logits, float32(m.plan.Logits))
	}
	if m.plan.Softcap != 0 {
		nn.Softcap(s, logits, float32(m.plan.Softcap))
	}
}
