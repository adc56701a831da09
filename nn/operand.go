package nn

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// weightCopies are the two copies of a weight, as the recipe that they were made
// under quantizes it. They are kept from one microbatch to the next.
type weightCopies struct {
	rowwise, columnwise *quant.Tensor // for fprop and dgrad
	made                recipe.Operand
}

// gemms has, by operand of a linear layer, the products that take it rowwise and
// columnwise.
var gemms = [...][2]recipe.GEMM{
	Input:  {recipe.Fprop, recipe.Wgrad},
	Weight: {recipe.Fprop, recipe.Dgrad},
	Grad:   {recipe.Dgrad, recipe.Wgrad},
}

// quantizers returns what quantizes an operand of a linear layer under s: what the
// recipe says, and a cast to its activations for products of high precision.
func (s *Scope) quantizers(o Operand) recipe.Operand {
	q := [...]recipe.Operand{Input: s.Recipe.Input, Weight: s.Recipe.Weight, Grad: s.Recipe.Grad}[o]
	high := quant.Quantizer{Format: s.Recipe.Activations}
	if s.Calibrating || s.Recipe.Precision(gemms[o][quant.Rowwise]) == recipe.HighPrecision {
		q.Rowwise = high
	}
	if s.Calibrating || s.Recipe.Precision(gemms[o][quant.Columnwise]) == recipe.HighPrecision {
		q.Columnwise = high
	}
	return q
}

// quantize returns the two copies of an operand, those that are asked for.
func (l *Linear) quantize(s *Scope, o Operand, x tensor.Dense, rowwise, columnwise bool) (row, col *quant.Tensor, err error) {
	q := s.quantizers(o)
	var inverse *float32
	if s.Recipe.Delayed.Enabled() {
		inverse = l.delayed[o].take(s, o, x)
	}
	made := func(q quant.Quantizer, d quant.Direction) quant.Copy {
		w := quant.With{Threads: s.Threads, Into: s.Memory.take(q.Format, d, x)}
		if q.Format.PerTensor() {
			w.Inverse = inverse
		}
		if q.Rounding == format.Stochastic {
			w.Random = s.random(l.Name, o, d)
		}
		return quant.Copy{Quantizer: q, With: w}
	}
	shared := columnwise && q.Shared()
	switch {
	case shared || !columnwise:
		c := made(q.Rowwise, quant.Rowwise)
		row, err = c.Quantizer.Rowwise(x, c.With)
	case !rowwise:
		c := made(q.Columnwise, quant.Columnwise)
		col, err = c.Quantizer.Columnwise(x, c.With)
	default:
		row, col, err = quant.Both(x, made(q.Rowwise, quant.Rowwise), made(q.Columnwise, quant.Columnwise))
	}
	if err == nil && shared {
		col, err = row.Transpose()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o, err)
	}
	if s.Observe != nil {
		for d, t := range []*quant.Tensor{row, col} {
			if t != nil {
				s.Observe(Observation{l.Name, o, quant.Direction(d), gemms[o][d], x, t})
			}
		}
	}
	return row, col, nil
}

// discard returns the copies of an operand to the scope's memory, but for a columnwise one
// that is the transpose of the rowwise one: no later operand is written into that.
func (s *Scope) discard(o Operand, rowwise, columnwise *quant.Tensor) {
	s.Memory.give(rowwise)
	if q := s.quantizers(o); !q.Shared() {
		s.Memory.give(columnwise)
	}
}

// forwardWeight returns the operand of fprop. It makes both copies of a weight that is
// not held at the first microbatch of a step, and where there are none of this recipe;
// the columnwise one only where a backward pass follows.
func (l *Linear) forwardWeight(s *Scope, backward bool) (*quant.Tensor, error) {
	if l.held.codes != nil {
		return l.held.rowwise(s)
	}
	c, q := &l.weight, s.quantizers(Weight)
	made := c.rowwise != nil && (c.columnwise != nil || !backward) && reflect.DeepEqual(c.made, q)
	if made && (s.Recompute || s.Microbatch > 0) {
		return c.rowwise, nil
	}
	w := l.Weight.Value
	if err := s.checkShape(Weight, w); err != nil {
		return nil, err
	}
	s.discard(Weight, c.rowwise, c.columnwise)
	*c = weightCopies{}
	row, col, err := l.quantize(s, Weight, s.rounded(w), true, backward)
	if err != nil {
		return nil, err
	}
	*c = weightCopies{row, col, q}
	return row, nil
}

// backwardWeight returns the operand of dgrad, and whether it is for this product alone.
func (l *Linear) backwardWeight(s *Scope) (columnwise *quant.Tensor, transient bool, err error) {
	if l.held.codes != nil {
		columnwise, err = l.heldColumnwise(s)
		return columnwise, true, err
	}
	if l.weight.columnwise == nil {
		return nil, false, errors.New("the copy of the weight that dgrad takes is gone: a forward pass of inference came between, under Microbatch 0")
	}
	return l.weight.columnwise, false, nil
}

// rounded returns w with values of the recipe's activations: w itself where these are
// F32, and else a copy in the scope's memory that is valid until the next call.
func (s *Scope) rounded(w tensor.Dense) tensor.Dense {
	if s.Recipe.Activations.Element == format.F32 {
		return w
	}
	x := s.Memory.dense(w.Rows, w.Cols)
	for i := range w.Rows {
		copy(x.Row(i), w.Row(i))
	}
	roundTo(x, s.Recipe.Activations, s.Threads)
	return x
}

// originalInput returns x as Scope.SaveOriginalInput keeps it.
func (l *Linear) originalInput(s *Scope, x tensor.Dense) (*quant.Tensor, error) {
	if s.Recipe.Delayed.Enabled() {
		return nil, fmt.Errorf("delayed scaling does not go with SaveOriginalInput: the scale of the forward pass is gone by then")
	}
	return quant.Quantizer{Format: s.Recipe.Activations}.Rowwise(x, quant.With{Threads: s.Threads})
}

// savedInput makes saved.input from the original, where that was saved.
func (l *Linear) savedInput(s *Scope, saved *LinearSaved) (err error) {
	if saved.original != nil {
		_, saved.input, err = l.quantize(s, Input, saved.original.Dequantize(s.Threads), false, true)
	}
	return err
}

// checkShape reports a shape that Transformer Engine does not quantize under the
// recipe.
func (s *Scope) checkShape(o Operand, x tensor.Dense) error {
	rows, cols := s.Recipe.Divisor()
	if s.Calibrating || x.Rows%rows == 0 && x.Cols%cols == 0 {
		return nil
	}
	hint := ""
	if x.Cols%cols == 0 && o != Weight {
		hint = fmt.Sprintf("; pad the tokens to a multiple of %d (Scope.Pad)", s.Recipe.Alignment())
	}
	return fmt.Errorf("the recipe %s requires the product of all dimensions except the last to be divisible by %d and the last dimension to be divisible by %d, but got the %s with dims %d×%d%s",
		s.Recipe.Name, rows, cols, o, x.Rows, x.Cols, hint)
}

// pad returns x with rows of zeros up to the recipe's alignment, where the scope
// asks for that, else x.
func (s *Scope) pad(x tensor.Dense) tensor.Dense {
	n := s.Recipe.Alignment()
	if !s.Pad || x.Rows%n == 0 {
		return x
	}
	padded := tensor.New((x.Rows+n-1)/n*n, x.Cols)
	for i := range x.Rows {
		copy(padded.Row(i), x.Row(i))
	}
	return padded
}
