package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// keep returns what a module keeps of x for its backward pass.
func (s *Scope) keep(x tensor.Dense) (*quant.Tensor, error) {
	q := quant.Quantizer{Format: s.Recipe.Activations}
	if s.Recipe.StoreQuantized {
		q.Format = quant.MXFP8
	}
	t, err := q.Rowwise(x, quant.With{Threads: s.Threads, Into: s.Memory.take(q.Format, quant.Rowwise, x)})
	if err != nil {
		return nil, fmt.Errorf("keeping the input for the backward pass: %w", err)
	}
	return t, nil
}

// restore returns what keep kept, which is no longer there then.
func (s *Scope) restore(kept **quant.Tensor) tensor.Dense {
	x := (*kept).Dequantize(s.Threads)
	s.Memory.give(*kept)
	*kept = nil
	return x
}

// nothingSaved is the error of a backward pass without what its forward pass saves.
func nothingSaved(module string) error {
	return fmt.Errorf("%s: backward: the forward pass saved nothing (Scope.Inference), or what it saved was used before", module)
}
