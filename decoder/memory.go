package decoder

import "github.com/microscale-go/microscale/nn"

// Memory is the memory of a training step at its peak, between the forward and the backward pass of a
// microbatch, in bytes. Matrices between modules and garbage are not included.
type Memory struct {
	Masters   int `json:"masters"`   // FP32 weights
	Gradients int `json:"gradients"` // FP32
	Moments   int `json:"moments"`   // optimizer state, which package train adds

	Rowwise    int `json:"rowwise"`    // copies of weights for fprop
	Columnwise int `json:"columnwise"` // copies of weights for dgrad; of held weights, those of one layer at a time

	// Activations that the forward pass saves for the backward pass, by module.
	Linear    int `json:"linear"`    // inputs of linear layers
	Norms     int `json:"norms"`     // inputs of norms
	SwiGLU    int `json:"swiglu"`    // inputs of SwiGLU: gate and up
	Attention int `json:"attention"` // Q, K and V
	Layers    int `json:"layers"`    // inputs of layers that are recomputed
	Loss      int `json:"loss"`      // logits, FP32

	Scratch  int `json:"scratch"`  // pooled buffers
	Messages int `json:"messages"` // gradients between ranks, which package train adds
	Staging  int `json:"staging"`  // weights between ranks, outside of gradients, which package train adds
}

// Activations returns the bytes that are saved for the backward pass.
func (m Memory) Activations() int {
	return m.Linear + m.Norms + m.SwiGLU + m.Attention + m.Layers + m.Loss
}

// Total returns the sum of all fields.
func (m Memory) Total() int {
	return m.Masters + m.Gradients + m.Moments + m.Rowwise + m.Columnwise + m.Activations() + m.Scratch + m.Messages + m.Staging
}

// Memory returns the memory of the last Train. Before one, copies of weights and activations are zero.
func (m *Model) Memory() Memory {
	n := m.lastTrain
	for _, p := range m.Params() {
		n.Masters += 4 * len(p.Value.Data)
		n.Gradients += 4 * len(p.Grad.Data)
	}
	return n
}

// measure adds up the saved activations and the copies of weights.
func (m *Model) measure(saved *modelSaved, head, loss nn.Saved) Memory {
	n := saved.recomputed
	for _, l := range saved.layers {
		l.add(&n)
	}
	n.Norms += saved.norm.Bytes()
	n.Linear += head.Bytes()
	n.Loss += loss.Bytes() + 4*len(saved.tokens)
	n.Scratch = m.pool.Bytes()
	add := func(p *projection) {
		rowwise, columnwise := p.linear.WeightBytes()
		n.Rowwise += rowwise
		n.Columnwise += columnwise
	}
	for _, p := range m.projections() {
		add(p)
	}
	return n
}

// add adds the activations that a layer saved.
func (s *layerSaved) add(n *Memory) {
	if s.input != nil {
		n.Layers += len(s.input.Codes)
		return
	}
	n.Linear += s.qkv.Bytes() + s.output.Bytes() + s.gateUp.Bytes() + s.down.Bytes()
	n.Norms += s.inputNorm.Bytes() + s.postNorm.Bytes()
	n.SwiGLU += s.swiglu.Bytes()
	n.Attention += s.attention.Bytes()
}

// transient returns the bytes of the largest columnwise copy that the backward pass made of a held
// weight.
func (m *Model) transient() int {
	n := 0
	for _, l := range m.layers {
		for _, p := range l.projections() {
			n = max(n, p.linear.TransientBytes())
		}
	}
	return n
}

// WeightBytes returns the memory of the weights in the form in which they are multiplied: the
// quantized copies of linear layers, and the embedding and norms in BF16. Master weights are not
// included.
func (m *Model) WeightBytes() int {
	n := 2 * (m.plan.Vocabulary*m.plan.Hidden + len(m.norm.Weight.Value.Data))
	for _, l := range m.layers {
		n += l.weightBytes()
	}
	return n + m.head.bytes()
}
