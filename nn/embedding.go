package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Embedding is a table of one row for each token id:
//
//	Y[t] = W[ids[t]]      dW[ids[t]] += dY[t]
//
// Its rows are rounded to the format of activations where they are looked up.
// No recipe quantizes it.
type Embedding struct {
	Name   string
	Weight *Param // vocabulary × width
}

// NewEmbedding returns a table of zeros.
func NewEmbedding(name string, vocabulary, width int) *Embedding {
	return &Embedding{Name: name, Weight: NewParam(name+".weight", vocabulary, width)}
}

// Params returns the table.
func (e *Embedding) Params() []*Param { return []*Param{e.Weight} }

// Forward returns the rows of ids.
func (e *Embedding) Forward(s *Scope, ids []int32) (tensor.Dense, error) {
	w := e.Weight.Value
	for i, id := range ids {
		if id < 0 || int(id) >= w.Rows {
			return tensor.Dense{}, fmt.Errorf("%s: token %d is %d, outside the vocabulary of %d", e.Name, i, id, w.Rows)
		}
	}
	y := tensor.New(len(ids), w.Cols)
	parallel.For(len(ids), rowGrain(w.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			copy(y.Row(i), w.Row(int(ids[i])))
			s.round(y.Row(i))
		}
	})
	return y, nil
}

// Backward adds dY to the gradient, the tokens in their order. The ids are those
// of Forward.
func (e *Embedding) Backward(s *Scope, ids []int32, dy tensor.Dense) error {
	grad := e.Weight.Grad
	if dy.Rows != len(ids) || dy.Cols != grad.Cols {
		return fmt.Errorf("%s: the gradient of %d tokens is %d×%d, not %d×%d", e.Name, len(ids), dy.Rows, dy.Cols, len(ids), grad.Cols)
	}
	// A goroutine has columns to itself, so that sums do not depend on threads.
	parallel.For(grad.Cols, 16, s.Threads, func(from, to int) {
		for i, id := range ids {
			g := grad.Row(int(id))[from:to]
			for j, v := range dy.Row(i)[from:to] {
				g[j] += v
			}
		}
	})
	return nil
}
