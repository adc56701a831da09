package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A layer is attention and a feed-forward network, each added to the residual stream. Norms are before
// them, after them or both.
type layer struct {
	plan   *LayerPlan
	exempt bool // computes without the recipe

	inputNorm     *nn.RMSNorm // nil norms change nothing
	qkv           projection
	latent        *latent // in place of qkv; nil: none
	attention     *nn.Attention
	output        projection
	attentionNorm *nn.RMSNorm

	postNorm *nn.RMSNorm
	mlp      mlp      // of a dense layer
	experts  *experts // nil: the layer is dense
	mlpNorm  *nn.RMSNorm

	unsaved layerSaved // of inference
}

func newLayer(p *Plan, number int, rotary *nn.Rotary) *layer {
	prefix := fmt.Sprintf("model.layers.%d.", number)
	plan := &p.Layers[number]
	a := plan.Attention
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	norm := func(name string, width int) *nn.RMSNorm {
		if name == "" {
			return nil
		}
		return nn.NewRMSNorm(prefix+name, width, float32(p.Epsilon))
	}
	n := p.names
	l := &layer{
		plan:          plan,
		inputNorm:     norm(n.AttentionInput, p.Hidden),
		qkv:           newProjection(prefix, "self_attn.qkv_proj", p.Hidden, a.Bias, n.QKV, q, kv, kv),
		output:        newProjection(prefix, n.Output, q, a.OutputBias, []string{n.Output}, p.Hidden),
		attentionNorm: norm(n.AttentionOutput, p.Hidden),
		postNorm:      norm(n.MLPInput, p.Hidden),
		mlpNorm:       norm(n.MLPOutput, p.Hidden),
		attention: &nn.Attention{
			Name: prefix + "self_attn", Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim, Rotary: rotary,
			Scale: float32(a.Scale), Window: a.Window, Softcap: float32(a.Softcap),
		},
	}
	if a.Latent != nil {
		l.latent = newLatent(a, p.Hidden, prefix)
		l.output = newProjection(prefix, n.Output, a.Heads*a.Latent.Value, a.OutputBias, []string{n.Output}, p.Hidden)
	}
	switch a.Norm {
	case family.HeadNorm:
		l.attention.QueryNorm, l.attention.KeyNorm = norm("self_attn.q_norm", a.HeadDim), norm("self_attn.k_norm", a.HeadDim)
	case family.WholeNorm:
		l.attention.QueryNorm, l.attention.KeyNorm = norm("self_attn.q_norm", q), norm("self_attn.k_norm", kv)
	}
	if a.Sinks {
		l.attention.Sinks = newVector(prefix+"self_attn.sinks", a.Heads)
	}
	if plan.Experts != nil {
		l.experts = newExperts(p, plan, prefix)
	} else {
		l.mlp = newMLP(plan.MLP, p.Hidden, prefix, "mlp.gate_up_proj", n.GateUp, n.Down)
	}
	return l
}

// newVector returns a parameter of zeros with one row.
func newVector(name string, width int) *nn.Param {
	return &nn.Param{Name: name, Value: tensor.New(1, width), Grad: tensor.New(1, width)}
}

// scope returns the scope that the layer computes under.
func (l *layer) scope(p *scopes) *nn.Scope {
	if l.exempt {
		return &p.exempt
	}
	return &p.quantized
}

// projections returns the linear layers that recipes quantize.
func (l *layer) projections() []*projection {
	list := []*projection{&l.qkv, &l.output}
	if l.latent != nil {
		list = append(l.latent.projections(), &l.output)
	}
	if l.experts != nil {
		return append(list, l.experts.projections()...)
	}
	return append(list, &l.mlp.gateUp, &l.mlp.down)
}

// all returns all linear layers: those of the router too.
func (l *layer) all() []*projection {
	list := l.projections()
	if l.experts != nil {
		list = append(list, l.experts.routers()...)
	}
	return list
}

// norms returns the norms that the layer has.
func (l *layer) norms() (list []*nn.RMSNorm) {
	if l.latent != nil {
		list = append(list, l.latent.norms()...)
	}
	for _, n := range []*nn.RMSNorm{l.inputNorm, l.attention.QueryNorm, l.attention.KeyNorm, l.attentionNorm, l.postNorm, l.mlpNorm} {
		if n != nil {
			list = append(list, n)
		}
	}
	return list
}

// params returns the parameters in the order of the computation.
func (l *layer) params() (list []*nn.Param) {
	norm := func(norms ...*nn.RMSNorm) {
		for _, n := range norms {
			if n != nil {
				list = append(list, n.Weight)
			}
		}
	}
	norm(l.inputNorm)
	if l.latent != nil {
		for _, p := range l.latent.projections() {
			list = append(list, p.params()...)
		}
		norm(l.latent.norms()...)
	} else {
		list = append(list, l.qkv.params()...)
	}
	norm(l.attention.QueryNorm, l.attention.KeyNorm)
	if l.attention.Sinks != nil {
		list = append(list, l.attention.Sinks)
	}
	list = append(list, l.output.params()...)
	norm(l.attentionNorm, l.postNorm)
	if l.experts != nil {
		list = append(list, l.experts.params()...)
	} else {
		list = append(list, l.mlp.params()...)
	}
	norm(l.mlpNorm)
	return list
}

func (l *layer) weightBytes() int {
	n := 0
	for _, norm := range l.norms() {
		n += 2 * len(norm.Weight.Value.Data)
	}
	for _, p := range l.all() {
		n += p.bytes()
	}
	return n
}

// layerSaved holds the activations of a layer for its backward pass: only the input if the layer is
// recomputed.
type layerSaved struct {
	input *quant.Tensor
	batch int

	inputNorm, qkv, attention, output nn.Saved
	postNorm, gateUp, swiglu, down    nn.Saved
}

// forward returns the residual stream after the layer. With a cache, x holds the next tokens of one
// sequence, or with several, one token of each. Under Scope.Inference, saved has nothing and belongs
// to the layer.
func (l *layer) forward(s *nn.Scope, x tensor.Dense, batch int, caches []*nn.Cache) (y tensor.Dense, saved *layerSaved, err error) {
	saved = &l.unsaved
	if !s.Inference {
		saved = &layerSaved{batch: batch}
	}
	var h tensor.Dense
	if h, saved.inputNorm, err = forwardNorm(l.inputNorm, s, x); err != nil {
		return y, nil, err
	}
	if l.latent != nil {
		h, err = l.latent.forward(s, h)
	} else {
		h, saved.qkv, err = l.qkv.forward(s, h)
	}
	if err != nil {
		return y, nil, err
	}
	switch len(caches) {
	case 0:
		h, saved.attention, err = l.attention.Forward(s, h, batch)
	case 1:
		h, err = l.attention.Extend(s, h, caches[0])
	default:
		h, err = l.attention.ExtendEach(s, h, caches)
	}
	if err != nil {
		return y, nil, err
	}
	if l.latent != nil {
		h = l.latent.compact(h)
	}
	if y, saved.output, err = l.output.forward(s, h); err != nil {
		return y, nil, err
	}
	if y, err = l.add(s, x, l.attentionNorm, y); err != nil {
		return y, nil, err
	}
	s.Arena.Turn()
	if h, saved.postNorm, err = forwardNorm(l.postNorm, s, y); err != nil {
		return y, nil, err
	}
	if l.experts != nil {
		h, err = l.experts.forward(s, h)
	} else {
		h, err = l.mlp.forward(s, h, saved)
	}
	if err != nil {
		return y, nil, err
	}
	y, err = l.add(s, y, l.mlpNorm, h)
	return y, saved, err
}

// forwardNorm returns the norm of x, or x without a norm.
func forwardNorm(n *nn.RMSNorm, s *nn.Scope, x tensor.Dense) (tensor.Dense, nn.Saved, error) {
	if n == nil {
		return x, nil, nil
	}
	return n.Forward(s, x)
}

// add returns x plus the norm of y times the factor of the layer. It may change y.
func (l *layer) add(s *nn.Scope, x tensor.Dense, n *nn.RMSNorm, y tensor.Dense) (tensor.Dense, error) {
	y, _, err := forwardNorm(n, s, y)
	if err != nil {
		return y, err
	}
	if l.plan.Residual != 1 {
		nn.Scale(s, y, float32(l.plan.Residual))
	}
	return y, nn.Add(s, y, x, y)
}

// backward returns the gradient of the layer's input for dy, that of its output. Plan.forwardOnly names
// what it does not compute.
func (l *layer) backward(s *nn.Scope, saved *layerSaved, dy tensor.Dense) (dx tensor.Dense, err error) {
	d, err := l.mlp.backward(s, saved, dy)
	if err != nil {
		return dx, err
	}
	if d, err = l.postNorm.Backward(s, saved.postNorm, d); err != nil {
		return dx, err
	}
	if err := nn.Add(s, d, dy, d); err != nil {
		return dx, err
	}
	dy = d // the memory of the previous dy is that of the next half
	s.Arena.Turn()
	if d, err = l.output.backward(s, saved.output, dy); err != nil {
		return dx, err
	}
	if d, err = l.attention.Backward(s, saved.attention, d); err != nil {
		return dx, err
	}
	if d, err = l.qkv.backward(s, saved.qkv, d); err != nil {
		return dx, err
	}
	if d, err = l.inputNorm.Backward(s, saved.inputNorm, d); err != nil {
		return dx, err
	}
	return d, nn.Add(s, d, dy, d)
}

// amaxes returns the amaxes that endForward or endBackward will use.
func (l *layer) amaxes(s *nn.Scope, gradients bool) []*float32 {
	if l.exempt {
		return nil
	}
	var amaxes []*float32
	for _, p := range l.projections() {
		amaxes = append(amaxes, p.linear.Amaxes(s, gradients)...)
	}
	return append(amaxes, l.attention.Amaxes(s, gradients)...)
}

// endForward and endBackward update delayed scales, which exempt layers do not have.
func (l *layer) endForward(s *nn.Scope) {
	if l.exempt {
		return
	}
	for _, p := range l.projections() {
		p.linear.EndForward(s)
	}
	l.attention.EndForward(s)
}

func (l *layer) endBackward(s *nn.Scope) {
	if l.exempt {
		return
	}
	for _, p := range l.projections() {
		p.linear.EndBackward(s)
	}
	l.attention.EndBackward(s)
}
