package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A Linear computes Y = X·Wᵀ + b, with X tokens × in, W out × in and Y tokens × out. The operands
// of its three products are quantized as the recipe says.
type Linear struct {
	Name   string
	Weight *Param // out × in
	Bias   *Param // 1 × out, or nil

	// SaveOriginalInput saves the input in the recipe's Activations for the backward pass, which
	// then quantizes it columnwise, instead of saving the columnwise copy. Delayed scaling does
	// not support it.
	SaveOriginalInput bool

	in, out int
	parts   []*Param       // views of Weight and Bias
	split   Split          // 0: the layer is whole
	columns *quant.Columns // that the rank has of the operands that are divided by columns
	weight  weightCopies
	held    heldWeight
	delayed [3]delayedScale // by Operand
}

// NewLinear returns a layer whose weight and bias are zero. Its parameters are name.weight and
// name.bias.
func NewLinear(name string, in, out int, bias bool) *Linear {
	return NewFusedLinear(name, in, bias, Part{name, out})
}

// A Part is one of several projections of the same input that a Linear computes as one.
type Part struct {
	Name string // of the parameters Name.weight and Name.bias
	Out  int
}

// NewFusedLinear returns a layer of several projections whose outputs are side by side: Q, K and
// V of attention, gate and up of SwiGLU. Their weights are the rows of one matrix and are
// quantized together, so that they share a per-tensor scale, as in Transformer Engine. Params
// returns the parts.
func NewFusedLinear(name string, in int, bias bool, parts ...Part) *Linear {
	l := &Linear{Name: name, in: in}
	for _, p := range parts {
		l.out += p.Out
	}
	l.Weight = newParam(name+".weight", l.out, in)
	if bias {
		l.Bias = newParam(name+".bias", 1, l.out)
	}
	from := 0
	for _, p := range parts {
		to := from + p.Out
		w := l.Weight
		l.parts = append(l.parts, &Param{Name: p.Name + ".weight", Value: w.Value.View(from, to, 0, in), Grad: w.Grad.View(from, to, 0, in)})
		if b := l.Bias; bias {
			l.parts = append(l.parts, &Param{Name: p.Name + ".bias", Value: b.Value.View(0, 1, from, to), Grad: b.Grad.View(0, 1, from, to)})
		}
		from = to
	}
	return l
}

// Params returns the weight and, if there is one, the bias of each part.
func (l *Linear) Params() []*Param { return l.parts }

// WeightBytes returns the bytes of codes and scales of the quantized copies of the weight that
// the layer holds, by direction.
func (l *Linear) WeightBytes() (rowwise, columnwise int) {
	return tensorBytes(l.weight.rowwise) + tensorBytes(l.held.codes), tensorBytes(l.weight.columnwise) + tensorBytes(l.held.columnwise)
}

type linearSaved struct {
	rows     int           // tokens without padding
	input    *quant.Tensor // X, columnwise
	original *quant.Tensor // X in Activations, instead of input
}

// Bytes implements Saved.
func (s *linearSaved) Bytes() int { return tensorBytes(s.input) + tensorBytes(s.original) }

// Forward returns Y for x, tokens × in, rounded to the recipe's Activations. It returns an error
// if the recipe cannot quantize x or the weight. saved is nil under Scope.Inference.
func (l *Linear) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved Saved, err error) {
	fail := func(err error) (tensor.Dense, Saved, error) {
		return tensor.Dense{}, nil, fmt.Errorf("%s: forward: %w", l.Name, err)
	}
	if x.Cols != l.in {
		return fail(fmt.Errorf("input: got %d columns, want %d", x.Cols, l.in))
	}
	rows := l.tokens(s, Input, x)
	x = s.pad(x)
	if err := s.checkShape(Input, x); err != nil {
		return fail(err)
	}
	weight, err := l.forwardWeight(s, !s.Inference)
	if err != nil {
		return fail(err)
	}
	saveQuantized := !s.Inference && !l.SaveOriginalInput
	own, xc, err := l.quantize(s, Input, x, true, saveQuantized)
	if err != nil {
		return fail(err)
	}
	xr, err := l.gather(s, Input, quant.Rowwise, own)
	if err != nil {
		return fail(err)
	}
	o := gemm.Options{Accumulator: s.accumulator(recipe.Fprop, xr, weight)}
	if l.Bias != nil {
		o.Bias = l.roundedBias(s)
	}
	y = s.Arena.Dense(xr.Rows(), l.out)
	if err := s.mul(y, Product{l.Name, recipe.Fprop, xr, weight}, o); err != nil {
		return fail(err)
	}
	if xc != own {
		s.Pool.put(own)
	}
	s.Round(y)
	y = y.View(0, rows, 0, y.Cols)
	if l.split == SplitInputs {
		if y, err = s.sumRanks(y); err != nil {
			return fail(err)
		}
	}
	if s.Inference {
		return y, nil, nil
	}
	kept := &linearSaved{rows: y.Rows, input: xc}
	if l.SaveOriginalInput {
		if kept.original, err = s.originalInput(x); err != nil {
			return fail(err)
		}
	}
	return y, kept, nil
}

// Backward returns dX for dy = dY and adds to the gradients of weight and bias. It consumes
// saved, which Forward returned.
func (l *Linear) Backward(s *Scope, saved Saved, dy tensor.Dense) (tensor.Dense, error) {
	fail := func(err error) (tensor.Dense, error) {
		return tensor.Dense{}, fmt.Errorf("%s: backward: %w", l.Name, err)
	}
	kept, _ := saved.(*linearSaved)
	if kept == nil || kept.input == nil && kept.original == nil {
		return tensor.Dense{}, nothingSaved(l.Name)
	}
	if dy.Rows != kept.rows || dy.Cols != l.out {
		return fail(fmt.Errorf("gradient: got %d×%d, want %d×%d", dy.Rows, dy.Cols, kept.rows, l.out))
	}
	rows := l.tokens(s, Grad, dy)
	dy = s.pad(dy)
	if err := s.checkShape(Grad, dy); err != nil {
		return fail(err)
	}
	if kept.original != nil {
		var err error
		if _, kept.input, err = l.quantize(s, Input, kept.original.Dequantize(s.Threads), false, true); err != nil {
			return fail(err)
		}
	}
	input, err := l.gather(s, Input, quant.Columnwise, kept.input)
	if err != nil {
		return fail(err)
	}
	dyr, dyc, err := l.quantizeGradient(s, dy)
	if err != nil {
		return fail(err)
	}
	weight, transient, err := l.backwardWeight(s)
	if err != nil {
		return fail(err)
	}
	dx := s.Arena.Dense(dyr.Rows(), l.in)
	if err := s.mul(dx, Product{l.Name, recipe.Dgrad, dyr, weight},
		gemm.Options{Accumulator: s.accumulator(recipe.Dgrad, dyr, weight)}); err != nil {
		return fail(err)
	}
	if transient && !l.held.quantizers.Shared() { // nothing is quantized into the transpose of held codes
		s.discard(nil, weight)
	}
	s.Round(dx)
	dx = dx.View(0, rows, 0, dx.Cols)
	if l.split == SplitOutputs {
		if dx, err = s.sumRanks(dx); err != nil {
			return fail(err)
		}
	}
	o := gemm.Options{Accumulate: true, Accumulator: s.accumulator(recipe.Wgrad, dyc, input)}
	if err := s.mul(l.Weight.Grad, Product{l.Name, recipe.Wgrad, dyc, input}, o); err != nil {
		return fail(err)
	}
	if l.Bias != nil {
		addColumnSums(l.Bias.Grad.Row(0), dy, s.Threads)
	}
	if !l.gathers(s, Grad) {
		s.discard(dyr, dyc)
	}
	s.discard(nil, kept.input)
	kept.input, kept.original = nil, nil
	return dx, nil
}

// quantizeGradient returns the rowwise and the columnwise copy of dY, of all tokens.
func (l *Linear) quantizeGradient(s *Scope, dy tensor.Dense) (rowwise, columnwise *quant.Tensor, err error) {
	row, col, err := l.quantize(s, Grad, dy, true, true)
	if err != nil || !l.gathers(s, Grad) {
		return row, col, err
	}
	defer s.discard(row, col)
	if rowwise, err = l.gather(s, Grad, quant.Rowwise, row); err != nil {
		return nil, nil, err
	}
	if q := s.quantizers(Grad); q.Shared() {
		columnwise, err = rowwise.Transpose()
		return rowwise, columnwise, err
	}
	columnwise, err = l.gather(s, Grad, quant.Columnwise, col)
	return rowwise, columnwise, err
}

// originalInput returns x as SaveOriginalInput saves it.
func (s *Scope) originalInput(x tensor.Dense) (*quant.Tensor, error) {
	if s.Recipe.Delayed.Enabled() {
		return nil, fmt.Errorf("delayed scaling does not support SaveOriginalInput: the scale of the forward pass is lost by the backward pass")
	}
	return quant.Quantizer{Format: s.Recipe.Activations}.Rowwise(x, quant.With{Threads: s.Threads})
}

// roundedBias returns the bias rounded to Activations, as Transformer Engine casts it for
// low-precision products.
func (l *Linear) roundedBias(s *Scope) []float32 {
	b := l.Bias.Value.Clone()
	s.round(b.Data)
	return b.Data
}

// addColumnSums adds the column sums of x to sums. It adds rows in float64 within chunks of fixed
// size, then the chunks in order, so that the result does not depend on threads.
func addColumnSums(sums []float32, x tensor.Dense, threads int) {
	const chunk = 64
	partial := make([][]float64, (x.Rows+chunk-1)/chunk)
	parallel.For(len(partial), 1, threads, func(from, to int) {
		for c := from; c < to; c++ {
			total := make([]float64, x.Cols)
			for i := c * chunk; i < min((c+1)*chunk, x.Rows); i++ {
				for j, v := range x.Row(i) {
					total[j] += float64(v)
				}
			}
			partial[c] = total
		}
	})
	for j := range sums {
		var total float64
		for _, p := range partial {
			total += p[j]
		}
		sums[j] += float32(total)
	}
}
