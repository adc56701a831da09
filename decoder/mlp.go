package decoder

import (
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// An mlp is a gated feed-forward network.
type mlp struct {
	gateUp projection
	unit   *nn.GLU
	down   projection
}

// newMLP returns the network of a plan. fused is the name of gate and up together, gateUp and down
// those of the tensors.
func newMLP(plan MLPPlan, hidden int, prefix, fused string, gateUp []string, down string) mlp {
	return mlp{
		gateUp: newProjection(prefix, fused, hidden, plan.Bias, gateUp, plan.Width, plan.Width),
		unit:   newUnit(plan, prefix+"mlp.act"),
		down:   newProjection(prefix, down, plan.Width, plan.Bias, []string{down}, hidden),
	}
}

// activations has the functions of the gate by the name in a plan.
var activations = map[string]nn.Activation{nn.SiLU.Name: nn.SiLU, nn.GELU.Name: nn.GELU, nn.QuickSiLU.Name: nn.QuickSiLU}

func newUnit(plan MLPPlan, name string) *nn.GLU {
	return &nn.GLU{Name: name, Activation: activations[plan.Activation], Limit: float32(plan.Limit), Interleaved: plan.Interleaved}
}

func (m *mlp) params() []*nn.Param { return append(m.gateUp.params(), m.down.params()...) }

// forward returns the output of the network. saved may be nil for inference.
func (m *mlp) forward(s *nn.Scope, x tensor.Dense, saved *layerSaved) (tensor.Dense, error) {
	if saved == nil {
		saved = &layerSaved{}
	}
	var err error
	if x, saved.gateUp, err = m.gateUp.forward(s, x); err != nil {
		return x, err
	}
	if x, saved.swiglu, err = m.unit.Forward(s, x); err != nil {
		return x, err
	}
	x, saved.down, err = m.down.forward(s, x)
	return x, err
}

// backward returns the gradient of the input.
func (m *mlp) backward(s *nn.Scope, saved *layerSaved, dy tensor.Dense) (tensor.Dense, error) {
	d, err := m.down.backward(s, saved.down, dy)
	if err != nil {
		return d, err
	}
	if d, err = m.unit.Backward(s, saved.swiglu, d); err != nil {
		return d, err
	}
	return m.gateUp.backward(s, saved.gateUp, d)
}
