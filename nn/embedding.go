package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
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

	first int // token of the first row

	// Stored replaces Weight for inference: a table whose rows are decoded when they are looked up.
	Stored *quant.Tensor
}

// NewEmbedding returns a table of zeros.
func NewEmbedding(name string, vocabulary, width int) *Embedding {
	return &Embedding{Name: name, Weight: newParam(name+".weight", vocabulary, width)}
}

// Divide makes e the part of rank rank of size ranks, which Scope.Ranks are in its passes: an equal
// run of rows of a larger table.
func (e *Embedding) Divide(rank, size int) {
	w := e.Weight
	e.first = rank * w.Value.Rows
	w.Place = Place{Rows: size * w.Value.Rows, Cols: w.Value.Cols, Row: e.first}
}

// Params returns the table, or nothing if it is Stored.
func (e *Embedding) Params() []*Param {
	if e.Stored != nil {
		return nil
	}
	return []*Param{e.Weight}
}

// size returns the rows and columns of the table.
func (e *Embedding) size() (vocabulary, width int) {
	if e.Stored != nil {
		return e.Stored.Rows(), e.Stored.Cols()
	}
	return e.Weight.Value.Rows, e.Weight.Value.Cols
}

// row sets dst to the row of an id, zeros if another rank has it.
func (e *Embedding) row(dst []float32, id int) error {
	id -= e.first
	if rows, _ := e.size(); id < 0 || id >= rows {
		clear(dst)
		return nil
	}
	if e.Stored == nil {
		copy(dst, e.Weight.Value.Row(id))
		return nil
	}
	if e.Stored.Format.Scaled() {
		e.Stored.DequantizeRows(tensor.Of(1, len(dst), dst), id, 1)
		return nil
	}
	n := e.Stored.RowBytes()
	return tensor.FromBytes(dst, e.Stored.Codes[id*n:(id+1)*n], e.Stored.Format.Element)
}

// Forward returns the rows of ids. An id outside the vocabulary is an error, except in padding
// (Scope.Lengths).
func (e *Embedding) Forward(s *Scope, ids []int32) (tensor.Dense, error) {
	rows, width := e.size()
	vocabulary := rows * s.Ranks.Size()
	for i, id := range ids {
		if (id < 0 || int(id) >= vocabulary) && !s.padding(i, len(ids)) {
			return tensor.Dense{}, fmt.Errorf("%s: token %d is %d, want 0 to %d", e.Name, i, id, vocabulary-1)
		}
	}
	y := s.Arena.Dense(len(ids), width)
	for i, id := range ids {
		if s.padding(i, len(ids)) {
			clear(y.Row(i))
			continue
		}
		if err := e.row(y.Row(i), int(id)); err != nil {
			return tensor.Dense{}, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	s.Round(y)
	return s.sumRanks(y) // exact: one rank has the row
}

// Backward adds dY to the gradient in the order of the tokens. ids are those of Forward.
func (e *Embedding) Backward(s *Scope, ids []int32, dy tensor.Dense) error {
	grad := e.Weight.Grad
	dy, err := s.gatherTokens(dy)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := checkGradient(e.Name, dy, len(ids), grad.Cols); err != nil {
		return err
	}
	// Each goroutine has its own columns, so that sums do not depend on threads.
	parallel.For(grad.Cols, 16, s.Threads, func(from, to int) {
		for i, id := range ids {
			row := int(id) - e.first
			if s.padding(i, len(ids)) || row < 0 || row >= grad.Rows {
				continue
			}
			g := grad.Row(row)[from:to]
			for j, v := range dy.Row(i)[from:to] {
				g[j] += v
			}
		}
	})
	return nil
}
