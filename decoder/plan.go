package decoder

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/family"
)

// A Plan is what a model computes, layer by layer: its family and its configuration compiled into
// numbers. Nothing at run time depends on the family.
//
//	x = embedding(tokens)·Embedding
//	for each layer:  x += Residual·norm(attention(norm(x)))      norms where the layer has them
//	                 x += Residual·norm(mlp(norm(x)))            or experts
//	logits = softcap(head(norm(x))·Logits)
type Plan struct {
	Family     string      `json:"family"`
	Vocabulary int         `json:"vocabulary"`
	Hidden     int         `json:"hidden"`
	Positions  int         `json:"positions"`
	Epsilon    float64     `json:"epsilon"` // of norms
	Embedding  float64     `json:"embedding"`
	Layers     []LayerPlan `json:"layers"`
	Tied       bool        `json:"tied"` // the head has the weights of the embedding
	Logits     float64     `json:"logits"`
	Softcap    float64     `json:"softcap,omitempty"` // of logits; 0: none

	names   family.Names
	plusOne bool
}

// A LayerPlan is a layer of a Plan.
type LayerPlan struct {
	AttentionInput  bool `json:"attention_input_norm"`
	AttentionOutput bool `json:"attention_output_norm"`
	MLPInput        bool `json:"mlp_input_norm"`
	MLPOutput       bool `json:"mlp_output_norm"`

	Attention AttentionPlan `json:"attention"`
	MLP       MLPPlan       `json:"mlp"`               // of a dense layer, or of each expert
	Experts   *ExpertsPlan  `json:"experts,omitempty"` // nil: the layer is dense
	Residual  float64       `json:"residual"`
}

// An AttentionPlan is the attention of a layer.
type AttentionPlan struct {
	Heads      int             `json:"heads"`
	KVHeads    int             `json:"kv_heads"`
	HeadDim    int             `json:"head_dim"`
	Scale      float64         `json:"scale"`
	Window     int             `json:"window,omitempty"` // tokens; 0: all
	Softcap    float64         `json:"softcap,omitempty"`
	Sinks      bool            `json:"sinks,omitempty"`
	Norm       family.NormKind `json:"query_key_norm,omitempty"`
	Bias       bool            `json:"bias"` // of Q, K and V
	OutputBias bool            `json:"output_bias"`
	Rope       *RopePlan       `json:"rope,omitempty"` // nil: positions are not embedded

	Latent *LatentPlan `json:"latent,omitempty"` // nil: Q, K and V are projected directly
}

// An MLPPlan is a gated feed-forward network.
type MLPPlan struct {
	Width       int     `json:"width"`
	Activation  string  `json:"activation"`
	Limit       float64 `json:"limit,omitempty"`
	Interleaved bool    `json:"interleaved,omitempty"`
	Bias        bool    `json:"bias"`
}

// An ExpertsPlan is the choice of experts.
type ExpertsPlan struct {
	Count      int              `json:"count"`
	Chosen     int              `json:"chosen"`
	Score      family.ScoreKind `json:"score"`
	Normalize  bool             `json:"normalize"`
	Scale      float64          `json:"scale"`
	Shared     int              `json:"shared,omitempty"`      // width of the expert that takes all tokens
	SharedGate bool             `json:"shared_gate,omitempty"` // its output is multiplied by a sigmoid
	Groups     int              `json:"groups,omitempty"`
	FromGroups int              `json:"from_groups,omitempty"` // number of groups that experts are chosen from
	Bias       bool             `json:"bias"`                  // of the router
	Correction bool             `json:"correction,omitempty"`  // a number for each expert joins the scores for the choice
}

// compile returns the plan of a model.
func compile(f *family.Family, s *family.Settings) (*Plan, error) {
	p := &Plan{
		Family: f.Name, Vocabulary: s.VocabSize, Hidden: s.HiddenSize, Positions: s.MaxPositionEmbeddings, Epsilon: s.RMSNormEps,
		Embedding: or(s.EmbeddingMultiplier, 1), Tied: s.TieWordEmbeddings, Logits: 1 / or(s.LogitsScaling, 1), Softcap: s.LogitSoftcap,
		names: f.Names, plusOne: f.PlusOne,
	}
	if f.EmbedRoot {
		p.Embedding = math.Sqrt(float64(s.HiddenSize))
	}
	if n := len(s.LayerTypes); n > 0 && n != s.NumHiddenLayers {
		return nil, fmt.Errorf("config.json: layer_types has %d layers, want num_hidden_layers, %d", n, s.NumHiddenLayers)
	}
	ropes := map[string]*RopePlan{}
	for i := range s.NumHiddenLayers {
		l, err := compileLayer(f, s, i, ropes)
		if err != nil {
			return nil, err
		}
		p.Layers = append(p.Layers, l)
	}
	return p, nil
}

// or returns x, or the value for a missing key.
func or(x, missing float64) float64 {
	if x == 0 {
		return missing
	}
	return x
}

// compileLayer returns the plan of a layer. ropes holds the rotary embeddings of the layers before, by the
// type of the layer.
func compileLayer(f *family.Family, s *family.Settings, layer int, ropes map[string]*RopePlan) (LayerPlan, error) {
	l := LayerPlan{
		AttentionInput: f.Names.AttentionInput != "", AttentionOutput: f.Names.AttentionOutput != "",
		MLPInput: f.Names.MLPInput != "", MLPOutput: f.Names.MLPOutput != "",
		MLP: mlpOf(f, s), Residual: or(s.ResidualMultiplier, 1),
	}
	var err error
	if l.Attention, err = compileAttention(f, s, layer, ropes); err != nil {
		return l, err
	}
	if f.Experts != nil && s.HasExperts(layer) {
		if l.Experts, err = compileExperts(f, s); err != nil {
			return l, err
		}
		if f.Experts.Width {
			l.MLP.Width = s.ExpertWidth
		}
	}
	return l, nil
}

func mlpOf(f *family.Family, s *family.Settings) MLPPlan {
	m := MLPPlan{Width: s.IntermediateSize, Activation: "silu", Bias: f.MLPBias(s)}
	switch {
	case f.GELU():
		m.Activation = "gelu"
	case f.Clamped():
		m.Activation, m.Limit, m.Interleaved = "quick silu", or(s.SwiGLULimit, 7), true
	}
	return m
}

func compileAttention(f *family.Family, s *family.Settings, layer int, ropes map[string]*RopePlan) (AttentionPlan, error) {
	a := AttentionPlan{
		Heads: s.NumAttentionHeads, KVHeads: s.NumKeyValueHeads, HeadDim: s.HeadDim, Softcap: s.ScoreSoftcap,
		Sinks: f.Sinks, Norm: f.QueryNorm,
	}
	if f.Latent {
		a.Latent = &LatentPlan{QueryRank: s.QueryRank, Rank: s.KeyValueRank, Plain: s.PlainDim, Rotated: s.RotatedDim, Value: s.ValueDim}
	}
	a.Scale = or(s.AttentionMultiplier, 1/math.Sqrt(or(s.QueryPreAttnScalar, float64(a.HeadDim))))
	a.Bias, a.OutputBias = f.AttentionBias(s)
	layerType, err := f.LayerType(s, layer)
	if err != nil {
		return a, err
	}
	if layerType == family.SlidingLayer {
		if s.SlidingWindow == nil || *s.SlidingWindow < 1 {
			return a, fmt.Errorf("config.json: layer %d has a sliding window, but sliding_window is missing or below 1", layer)
		}
		a.Window = *s.SlidingWindow
	}
	if !s.HasRope(layer) {
		return a, nil
	}
	if ropes[layerType] == nil {
		if ropes[layerType], err = ropeOf(f, s, layerType); err != nil {
			return a, err
		}
	}
	a.Rope = ropes[layerType]
	a.Scale *= a.Rope.scale
	return a, nil
}

// ropeOf returns the rotary embedding of the layers of a type.
func ropeOf(f *family.Family, s *family.Settings, layerType string) (*RopePlan, error) {
	r, err := s.Rope(f, layerType)
	if err != nil {
		return nil, err
	}
	head := s.HeadDim
	if f.Latent {
		head = s.RotatedDim
	}
	p, err := (ropeSettings{r}).plan(head, s.MaxPositionEmbeddings)
	if err == nil {
		p.Interleaved = f.Interleaved
	}
	return p, err
}

func compileExperts(f *family.Family, s *family.Settings) (*ExpertsPlan, error) {
	e := &ExpertsPlan{
		Count: s.ExpertCount(), Chosen: s.ExpertsChosen, Score: f.Experts.Score, Normalize: f.Experts.Normalize,
		Scale: or(s.RoutedScaling, 1), Shared: s.SharedWidth, SharedGate: f.Names.SharedGate != "", Groups: s.Groups, FromGroups: s.ChosenGroups,
		Bias: f.RouterBias(), Correction: f.Names.Correction != "",
	}
	if s.NormTopK != nil {
		e.Normalize = *s.NormTopK
	}
	if s.SharedExperts > 0 {
		e.Shared = s.SharedExperts * s.ExpertWidth
	}
	const maxExperts = 1 << 16
	switch {
	case e.Count < 1 || e.Count > maxExperts:
		return nil, fmt.Errorf("config.json: the number of experts is %d, want 1 to %d", e.Count, maxExperts)
	case e.Chosen < 1 || e.Chosen > e.Count:
		return nil, fmt.Errorf("config.json: num_experts_per_tok is %d, want 1 to %d, the number of experts", e.Chosen, e.Count)
	case f.Experts.Width && (s.ExpertWidth < 1 || s.ExpertWidth > 1<<20):
		return nil, fmt.Errorf("config.json: moe_intermediate_size is %d, want 1 to %d", s.ExpertWidth, 1<<20)
	case f.Names.Shared != "" && (e.Shared < 1 || e.Shared > 1<<20):
		return nil, fmt.Errorf("config.json: the width of shared experts is %d, want 1 to %d", e.Shared, 1<<20)
	}
	return e, e.checkGroups()
}

// checkGroups returns an error unless the experts can be divided into the groups. 0 and 1 are no groups.
func (e *ExpertsPlan) checkGroups() error {
	switch {
	case e.Groups < 0 || e.Groups > 1 && e.Count%e.Groups != 0:
		return fmt.Errorf("config.json: n_group is %d, want a divisor of the number of experts, %d", e.Groups, e.Count)
	case e.Groups > 1 && (e.FromGroups < 1 || e.FromGroups > e.Groups):
		return fmt.Errorf("config.json: topk_group is %d, want 1 to n_group, %d", e.FromGroups, e.Groups)
	}
	return nil
}

// Trainable returns an error that matches errors.ErrUnsupported if the model has no backward pass.
func (p *Plan) Trainable() error {
	if missing := p.forwardOnly(); missing != "" {
		return family.Unsupported(fmt.Errorf("%s has no backward pass", missing))
	}
	return nil
}

// forwardOnly names what has no backward pass, or returns "".
func (p *Plan) forwardOnly() string {
	if p.Embedding != 1 || p.Logits != 1 || p.Softcap != 0 {
		return "a factor or softcap of embeddings or logits"
	}
	for _, l := range p.Layers {
		switch a := l.Attention; {
		case l.Experts != nil:
			return "a mixture of experts"
		case !l.AttentionInput || !l.MLPInput || l.AttentionOutput || l.MLPOutput:
			return "norms of the outputs of attention and MLP"
		case a.Latent != nil:
			return "latent attention"
		case l.Residual != 1:
			return "a factor of the residual connections"
		case a.Norm != family.NoNorm:
			return "the norm of queries and keys"
		case a.Softcap != 0 || a.Sinks:
			return "a softcap or a sink of attention"
		case l.MLP.Activation != "silu" || l.MLP.Interleaved:
			return "the activation " + l.MLP.Activation
		}
	}
	return ""
}

// Parameters returns the number of weights, at most the largest int64. A tied head counts once.
func (p *Plan) Parameters() int64 {
	n := int64(p.Hidden) + int64(p.Vocabulary)*int64(p.Hidden)
	if !p.Tied {
		n += int64(p.Vocabulary) * int64(p.Hidden)
	}
	for i := range p.Layers {
		more := p.Layers[i].parameters(int64(p.Hidden))
		if n > math.MaxInt64-more {
			return math.MaxInt64
		}
		n += more
	}
	return n
}

func (l *LayerPlan) parameters(hidden int64) int64 {
	n := l.Attention.parameters(hidden)
	for _, norm := range []bool{l.AttentionInput, l.AttentionOutput, l.MLPInput, l.MLPOutput} {
		n += count(norm, hidden)
	}
	mlp := 3*hidden*int64(l.MLP.Width) + count(l.MLP.Bias, 2*int64(l.MLP.Width)+hidden)
	e := l.Experts
	if e == nil {
		return n + mlp
	}
	each := mlp + hidden + count(e.Bias, 1) + count(e.Correction, 1)
	return n + int64(e.Count)*each + 3*hidden*int64(e.Shared) + count(e.SharedGate, hidden)
}

func (a *AttentionPlan) parameters(hidden int64) int64 {
	d := int64(a.HeadDim)
	q, kv := int64(a.Heads)*d, int64(a.KVHeads)*d
	n := count(a.Sinks, int64(a.Heads)) + count(a.OutputBias, hidden)
	switch a.Norm {
	case family.HeadNorm:
		n += 2 * d
	case family.WholeNorm:
		n += q + kv
	}
	p := a.Latent
	if p == nil {
		return n + hidden*2*(q+kv) + count(a.Bias, q+2*kv)
	}
	rank, down, heads := int64(p.Rank), int64(p.Rank+p.Rotated), int64(a.Heads)
	n += down*hidden + count(a.Bias, down) + rank + rank*heads*int64(p.Plain+p.Value) + hidden*heads*int64(p.Value)
	if r := int64(p.QueryRank); r > 0 {
		return n + r*hidden + count(a.Bias, r) + r + r*q
	}
	return n + hidden*q
}

// count returns n for what a layer has, and 0 for what it does not have.
func count(has bool, n int64) int64 {
	if has {
		return n
	}
	return 0
}
