package nn

import (
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/recipe"
)

// An Operand is the role of a tensor in a matrix product: input, weight or gradient of a linear
// layer, or one of the operands of attention (query, key, value, probability, grad_output,
// grad_probability).
type Operand uint8

// The operands of a linear layer.
const (
	Input  Operand = iota // X
	Weight                // W
	Grad                  // dY

	query
	key
	value
	probability
	gradOutput      // of attention
	gradProbability // of the scores, after the backward pass of softmax

	operands int = iota
)

var operandNames = [operands]string{"input", "weight", "grad", "query", "key", "value", "probability", "grad_output", "grad_probability"}

// String returns the operand's name, or "Operand(N)" for a value without a name.
func (o Operand) String() string { return naming.String("Operand", operandNames[:], o) }

// MarshalText returns the operand's name. It returns an error for a value without a name.
func (o Operand) MarshalText() ([]byte, error) { return naming.Marshal("operand", operandNames[:], o) }

// UnmarshalText sets o to the operand of the given name. Case is ignored.
func (o *Operand) UnmarshalText(text []byte) error {
	return naming.Unmarshal("operand", operandNames[:], o, text)
}

// isGradient reports whether o belongs to the backward pass.
func (o Operand) isGradient() bool { return o == Grad || o == gradOutput || o == gradProbability }

// gemms maps an operand of a linear layer to the products that take it rowwise and columnwise.
var gemms = [...][2]recipe.GEMM{
	Input:  {recipe.Fprop, recipe.Wgrad},
	Weight: {recipe.Fprop, recipe.Dgrad},
	Grad:   {recipe.Dgrad, recipe.Wgrad},
}
