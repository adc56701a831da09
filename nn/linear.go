package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A Linear is Y = X·Wᵀ + b, with X tokens × in, W out × in and Y tokens × out. All
// of its three products are of quantized operands, those that the recipe names.
type Linear struct {
	Name   string
	Weight *Param // out × in
	Bias   *Param // 1 × out, or nil

	weight  weightCopies
	delayed [3]delayedScale // by Operand
}

// NewLinear returns a layer whose weight and bias are zero. Its parameters are
// name.weight and name.bias.
func NewLinear(name string, in, out int, bias bool) *Linear {
	l := &Linear{Name: name, Weight: NewParam(name+".weight", out, in)}
	if bias {
		l.Bias = NewParam(name+".bias", 1, out)
	}
	return l
}

// Params returns the weight, and the bias where there is one.
func (l *Linear) Params() []*Param {
	if l.Bias == nil {
		return []*Param{l.Weight}
	}
	return []*Param{l.Weight, l.Bias}
}

// LinearSaved is what a forward pass keeps for the backward pass.
type LinearSaved struct {
	rows     int           // tokens, padding aside
	input    *quant.Tensor // X as wgrad takes it
	original *quant.Tensor // X in BF16, in place of input (Scope.SaveOriginalInput)
}

// Bytes returns how many bytes of codes and scales are kept.
func (s *LinearSaved) Bytes() int {
	if s == nil {
		return 0
	}
	return tensorBytes(s.input) + tensorBytes(s.original)
}

func tensorBytes(t *quant.Tensor) int {
	if t == nil {
		return 0
	}
	return len(t.Codes) + len(t.Scales) + 4*len(t.Scales32)
}

// Forward computes Y for x, tokens × in, with values of the recipe's Activations. It
// fails where the recipe cannot quantize x or the weight for their shapes. What is
// saved is nil under Scope.Inference.
func (l *Linear) Forward(s *Scope, x tensor.Dense) (tensor.Dense, *LinearSaved, error) {
	fail := func(err error) (tensor.Dense, *LinearSaved, error) {
		return tensor.Dense{}, nil, fmt.Errorf("%s: forward: %w", l.Name, err)
	}
	if x.Cols != l.Weight.Value.Cols {
		return fail(fmt.Errorf("the input has %d columns, the weight is %d×%d", x.Cols, l.Weight.Value.Rows, l.Weight.Value.Cols))
	}
	rows := x.Rows
	x = s.pad(x)
	if err := s.checkShape(Input, x); err != nil {
		return fail(err)
	}
	if err := l.quantizeWeight(s, !s.Inference); err != nil {
		return fail(err)
	}
	saveQuantized := !s.Inference && !s.SaveOriginalInput
	xr, xc, err := l.quantize(s, Input, x, true, saveQuantized)
	if err != nil {
		return fail(err)
	}
	o := gemm.Options{}
	if l.Bias != nil {
		o.Bias = l.roundedBias(s)
	}
	y := tensor.New(x.Rows, l.Weight.Value.Rows)
	if err := s.mul(y, Product{l.Name, recipe.Fprop, xr, l.weight.rowwise}, o); err != nil {
		return fail(err)
	}
	s.Round(y)
	y = y.View(0, rows, 0, y.Cols)
	if s.Inference {
		return y, nil, nil
	}
	saved := &LinearSaved{rows: rows, input: xc}
	if s.SaveOriginalInput {
		if saved.original, err = l.originalInput(s, x); err != nil {
			return fail(err)
		}
	}
	return y, saved, nil
}

// Backward returns dX for dy, the gradient of what Forward returned, and adds to
// the gradients of weight and bias. saved can be used once.
func (l *Linear) Backward(s *Scope, saved *LinearSaved, dy tensor.Dense) (tensor.Dense, error) {
	fail := func(err error) (tensor.Dense, error) {
		return tensor.Dense{}, fmt.Errorf("%s: backward: %w", l.Name, err)
	}
	if saved == nil {
		return fail(fmt.Errorf("the forward pass saved nothing (Scope.Inference)"))
	}
	if dy.Rows != saved.rows || dy.Cols != l.Weight.Value.Rows {
		return fail(fmt.Errorf("the gradient is %d×%d, the output was %d×%d", dy.Rows, dy.Cols, saved.rows, l.Weight.Value.Rows))
	}
	rows := dy.Rows
	dy = s.pad(dy)
	if err := s.checkShape(Grad, dy); err != nil {
		return fail(err)
	}
	if err := l.savedInput(s, saved); err != nil {
		return fail(err)
	}
	dyr, dyc, err := l.quantize(s, Grad, dy, true, true)
	if err != nil {
		return fail(err)
	}
	dx := tensor.New(dy.Rows, l.Weight.Value.Cols)
	if err := s.mul(dx, Product{l.Name, recipe.Dgrad, dyr, l.weight.columnwise}, gemm.Options{}); err != nil {
		return fail(err)
	}
	s.Round(dx)
	if err := s.mul(l.Weight.Grad, Product{l.Name, recipe.Wgrad, dyc, saved.input}, gemm.Options{Accumulate: true}); err != nil {
		return fail(err)
	}
	if l.Bias != nil {
		addColumnSums(l.Bias.Grad.Row(0), dy, s.Threads)
	}
	saved.input, saved.original = nil, nil
	return dx.View(0, rows, 0, dx.Cols), nil
}

// EndForward ends a forward pass for delayed scaling: the scales of input and
// weight are computed anew. Transformer Engine does so at the end of the outermost
// autocast, so call it for every layer after the forward pass of a microbatch, and
// not after one of recomputation or inference. Other recipes have nothing to do.
func (l *Linear) EndForward(s *Scope) { l.updateScales(s, Input, Weight) }

// EndBackward ends a backward pass for delayed scaling: the scale of gradients is
// computed anew.
func (l *Linear) EndBackward(s *Scope) { l.updateScales(s, Grad) }

func (l *Linear) updateScales(s *Scope, operands ...Operand) {
	if !s.Recipe.Delayed.Enabled() {
		return
	}
	for _, o := range operands {
		l.delayed[o].prepare(s.Recipe.Delayed.AmaxHistoryLen)
		l.delayed[o].update(s.Recipe.Delayed, s.fp8Max(o))
	}
}

// roundedBias returns the bias as it is added: in BF16 under every recipe but f32,
// as Transformer Engine casts it for low-precision products.
func (l *Linear) roundedBias(s *Scope) []float32 {
	b := l.Bias.Value.Clone()
	roundTo(b, s.Recipe.Activations, 1)
	return b.Data
}

// addColumnSums adds the sums of the columns of x to sums. Each is taken in
// float64 from the first row to the last.
func addColumnSums(sums []float32, x tensor.Dense, threads int) {
	parallel.For(x.Cols, 64, threads, func(from, to int) {
		total := make([]float64, to-from)
		for i := range x.Rows {
			for j, v := range x.Row(i)[from:to] {
				total[j] += float64(v)
			}
		}
		for j, v := range total {
			sums[from+j] += float32(v)
		}
	})
}
