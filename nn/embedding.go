package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Embedding is a table with one row per token id:
//
//	Y[t] = W[ids[t]]      dW[ids[t]] += dY[t]
//
// No recipe quantizes it. Y is rounded to the recipe's Activations.
type Embedding struct {
	Name   string
	Weight *Param // vocabulary × width
}

// NewEmbedding returns a table of zeros.
func NewEmbedding(name string, vocabulary, width int) *Embedding {
	return &Embedding{Name: name, Weight: newParam(name+".weight", vocabulary, width)}
}

// Params returns the table.
func (e *Embedding) Params() []*Param { return []*Param{e.Weight} }

// Forward returns the rows of ids. An id outside the vocabulary is an error.
func (e *Embedding) Forward(s *Scope, ids []int32) (tensor.Dense, error) {
	w := e.Weight.Value
	for i, id := range ids {
		if id < 0 || int(id) >= w.Rows {
			return tensor.Dense{}, fmt.Errorf("%s: token %d is %d, want 0 to %d", e.Name, i, id, w.Rows-1)
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

// Backward adds dY to the gradient in the order of the tokens. ids are those of Forward.
func (e *Embedding) Backward(s *Scope, ids []int32, dy tensor.Dense) error {
	grad := e.Weight.Grad
	if err := checkGradient(e.Name, dy, len(ids), grad.Cols); err != nil {
		return err
	}
	// Each goroutine has its own columns, so that sums do not depend on threads.
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
