package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A layer is attention and a feed-forward network, each after a norm and added to the residual
// stream.
type layer struct {
	exempt bool // computes without the recipe

	inputNorm *nn.RMSNorm
	qkv       projection
	attention *nn.Attention
	output    projection

	postNorm *nn.RMSNorm
	gateUp   projection
	swiglu   *nn.GLU
	down     projection
}

func newLayer(c Config, number int, rotary *nn.Rotary) *layer {
	prefix := fmt.Sprintf("model.layers.%d.", number)
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	linear := func(name string, in int, parts ...nn.Part) projection {
		for i := range parts {
			parts[i].Name = prefix + parts[i].Name
		}
		return projection{linear: nn.NewFusedLinear(prefix+name, in, false, parts...)}
	}
	return &layer{
		inputNorm: nn.NewRMSNorm(prefix+"input_layernorm", c.HiddenSize, float32(c.RMSNormEps)),
		qkv:       linear("self_attn.qkv_proj", c.HiddenSize, nn.Part{Name: "self_attn.q_proj", Out: q}, nn.Part{Name: "self_attn.k_proj", Out: kv}, nn.Part{Name: "self_attn.v_proj", Out: kv}),
		attention: &nn.Attention{Name: prefix + "self_attn", Heads: c.NumAttentionHeads, KVHeads: c.NumKeyValueHeads, HeadDim: c.HeadDim, Rotary: rotary},
		output:    linear("self_attn.o_proj", q, nn.Part{Name: "self_attn.o_proj", Out: c.HiddenSize}),
		postNorm:  nn.NewRMSNorm(prefix+"post_attention_layernorm", c.HiddenSize, float32(c.RMSNormEps)),
		gateUp:    linear("mlp.gate_up_proj", c.HiddenSize, nn.Part{Name: "mlp.gate_proj", Out: c.IntermediateSize}, nn.Part{Name: "mlp.up_proj", Out: c.IntermediateSize}),
		swiglu:    &nn.GLU{Name: prefix + "mlp.act"},
		down:      linear("mlp.down_proj", c.IntermediateSize, nn.Part{Name: "mlp.down_proj", Out: c.HiddenSize}),
	}
}

// scope returns the scope that the layer computes under.
func (l *layer) scope(quantized, exempt *nn.Scope) *nn.Scope {
	if l.exempt {
		return exempt
	}
	return quantized
}

// projections returns the linear layers.
func (l *layer) projections() []*projection {
	return []*projection{&l.qkv, &l.output, &l.gateUp, &l.down}
}

func (l *layer) params() []*nn.Param {
	var list []*nn.Param
	list = append(list, l.inputNorm.Params()...)
	list = append(list, l.qkv.params()...)
	list = append(list, l.output.params()...)
	list = append(list, l.postNorm.Params()...)
	list = append(list, l.gateUp.params()...)
	return append(list, l.down.params()...)
}

func (l *layer) weightBytes() int {
	n := 2 * (len(l.inputNorm.Weight.Value.Data) + len(l.postNorm.Weight.Value.Data))
	for _, p := range l.projections() {
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
// sequence.
func (l *layer) forward(s *nn.Scope, x tensor.Dense, batch int, cache *nn.Cache) (y tensor.Dense, saved *layerSaved, err error) {
	saved = &layerSaved{batch: batch}
	var h tensor.Dense
	if h, saved.inputNorm, err = l.inputNorm.Forward(s, x); err != nil {
		return y, nil, err
	}
	if h, saved.qkv, err = l.qkv.forward(s, h); err != nil {
		return y, nil, err
	}
	if cache != nil {
		h, err = l.attention.Extend(s, h, cache)
	} else {
		h, saved.attention, err = l.attention.Forward(s, h, batch)
	}
	if err != nil {
		return y, nil, err
	}
	if y, saved.output, err = l.output.forward(s, h); err != nil {
		return y, nil, err
	}
	if err := nn.Add(s, y, x, y); err != nil {
		return y, nil, err
	}
	if h, saved.postNorm, err = l.postNorm.Forward(s, y); err != nil {
		return y, nil, err
	}
	if h, saved.gateUp, err = l.gateUp.forward(s, h); err != nil {
		return y, nil, err
	}
	if h, saved.swiglu, err = l.swiglu.Forward(s, h); err != nil {
		return y, nil, err
	}
	if h, saved.down, err = l.down.forward(s, h); err != nil {
		return y, nil, err
	}
	return y, saved, nn.Add(s, y, y, h)
}

// backward returns the gradient of the layer's input for dy, that of its output.
func (l *layer) backward(s *nn.Scope, saved *layerSaved, dy tensor.Dense) (dx tensor.Dense, err error) {
	d, err := l.down.linear.Backward(s, saved.down, dy)
	if err != nil {
		return dx, err
	}
	if d, err = l.swiglu.Backward(s, saved.swiglu, d); err != nil {
		return dx, err
	}
	if d, err = l.gateUp.linear.Backward(s, saved.gateUp, d); err != nil {
		return dx, err
	}
	if d, err = l.postNorm.Backward(s, saved.postNorm, d); err != nil {
		return dx, err
	}
	if err := nn.Add(s, dy, dy, d); err != nil {
		return dx, err
	}
	if d, err = l.output.linear.Backward(s, saved.output, dy); err != nil {
		return dx, err
	}
	if d, err = l.attention.Backward(s, saved.attention, d); err != nil {
		return dx, err
	}
	if d, err = l.qkv.linear.Backward(s, saved.qkv, d); err != nil {
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
