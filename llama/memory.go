package llama

import "github.com/microscale-go/microscale/nn"

// Memory is what a model holds between the forward and the backward pass of a
// microbatch, when it holds most, in bytes. Master weights, gradients, and the matrices
// that pass from one module to the next are not among it.
type Memory struct {
	Rowwise    int `json:"rowwise"`    // copies of weights that fprop takes
	Columnwise int `json:"columnwise"` // copies of weights that dgrad takes; of held weights those of one layer at a time

	// Activations that the forward pass saves for the backward pass, by module.
	Linear    int `json:"linear"`    // inputs of linear layers
	Norms     int `json:"norms"`     // inputs of norms
	SwiGLU    int `json:"swiglu"`    // inputs of SwiGLU: gate and up
	Attention int `json:"attention"` // Q, K and V
	Layers    int `json:"layers"`    // inputs of layers that are computed again
	Loss      int `json:"loss"`      // logits, which are FP32

	Scratch int `json:"scratch"` // operands out of use, which later ones are written into
}

// Weights returns the bytes of the copies of weights.
func (m Memory) Weights() int { return m.Rowwise + m.Columnwise }

// Activations returns the bytes of what is saved for the backward pass.
func (m Memory) Activations() int {
	return m.Linear + m.Norms + m.SwiGLU + m.Attention + m.Layers + m.Loss
}

// Total returns the sum of all.
func (m Memory) Total() int { return m.Weights() + m.Activations() + m.Scratch }

// Memory returns what the last Train held.
func (m *Model) Memory() Memory { return m.held }

// ActivationBytes returns the memory of what the last Train saved from its forward for
// its backward pass: codes and scales of activations, and the logits.
func (m *Model) ActivationBytes() int { return m.held.Activations() }

// memory adds up what was saved, and what weights are kept.
func (m *Model) memory(saved *modelSaved, head *nn.LinearSaved, loss *nn.CrossEntropySaved) Memory {
	n := saved.recomputed
	for _, l := range saved.layers {
		l.add(&n)
	}
	n.Norms += saved.norm.Bytes()
	n.Linear += head.Bytes()
	n.Loss += loss.Bytes() + 4*len(saved.tokens)
	n.Scratch = m.memoryPool.Bytes()
	add := func(p *projection) {
		rowwise, columnwise := p.linear.WeightBytes()
		n.Rowwise += rowwise
		n.Columnwise += columnwise
	}
	for _, l := range m.layers {
		for _, p := range l.projections() {
			add(p)
		}
	}
	add(&m.head)
	return n
}

// add adds what a layer saved.
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

// transient returns the largest columnwise copy that the backward pass made of a held
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

// WeightBytes returns the memory of the weights as they are multiplied: the copies
// of the linear layers that are kept now, and the embedding and norms in BF16. Master
// weights are not among them.
func (m *Model) WeightBytes() int {
	n := 2 * (len(m.embedding.Weight.Value.Data) + len(m.norm.Weight.Value.Data))
	for _, l := range m.layers {
		n += l.weightBytes()
	}
	return n + m.head.bytes()
}
