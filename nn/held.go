package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// HoldWeight makes the weight's two quantized copies its primary values, as
// Transformer Engine's quantized_model_init has them and Megatron-LM's
// --fp8-param-gather keeps them between steps. The value of Weight, the FP32 master
// of the caller's, is rounded to the recipe's activations and quantized. Products
// under this recipe take these copies until the next call, and Weight has the
// values of the rowwise one, which products of high precision take.
func (l *Linear) HoldWeight(s *Scope) error {
	if w := s.Recipe.Weight.Rowwise; !w.Format.Scaled() || w.Hadamard {
		return fmt.Errorf("%s: the recipe %s does not quantize weights to values that they could be held in", l.Name, s.Recipe.Name)
	}
	t := *s
	t.Recipe.Fprop, t.Recipe.Dgrad = recipe.Quantized, recipe.Quantized
	t.Microbatch, t.Recompute, t.Inference = 0, false, false
	l.held = false
	if err := l.quantizeWeight(&t, true); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	values := l.weight.rowwise.Dequantize(s.Threads)
	for i := range values.Rows {
		copy(l.Weight.Value.Row(i), values.Row(i))
	}
	high := quant.Quantizer{Format: s.Recipe.Activations}
	c := &l.weight
	var err error
	if s.Recipe.Fprop == recipe.HighPrecision {
		if c.rowwise, err = high.Rowwise(values, quant.With{Threads: s.Threads}); err != nil {
			return err
		}
	}
	if s.Recipe.Dgrad == recipe.HighPrecision {
		if c.columnwise, err = high.Columnwise(values, quant.With{Threads: s.Threads}); err != nil {
			return err
		}
	}
	c.made, l.held = s.quantizers(Weight), true
	return nil
}
