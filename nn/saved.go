package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Saved holds the activations that a forward pass saves for the backward pass of the same
// module, which consumes them.
type Saved interface {
	Bytes() int // of codes, scales and float32 values
}

// save returns x in the format in which modules other than Linear save it.
func (s *Scope) save(x tensor.Dense) (*quant.Tensor, error) {
	q := quant.Quantizer{Format: s.Recipe.Activations}
	if s.Recipe.StoreQuantized {
		q.Format = quant.MXFP8
	}
	t, err := q.Rowwise(x, quant.With{Threads: s.Threads, Into: s.Pool.take(q.Format, quant.Rowwise, x)})
	if err != nil {
		return nil, fmt.Errorf("save the input for the backward pass: %w", err)
	}
	return t, nil
}

// restore decodes what save returned, puts it into the pool and clears the pointer.
func (s *Scope) restore(saved **quant.Tensor) tensor.Dense {
	x := s.Arena.Dense((*saved).Rows(), (*saved).Cols())
	(*saved).DequantizeRows(x, 0, s.Threads)
	s.Pool.put(*saved)
	*saved = nil
	return x
}

// nothingSaved returns the error of a backward pass without saved activations.
func nothingSaved(module string) error {
	return fmt.Errorf("%s: backward: no saved activations: the forward pass was one of inference or of another module, or they were "+
		"used before", module)
}
