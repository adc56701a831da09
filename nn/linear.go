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

	in, out int
	parts   []*Param // views of Weight and Bias
	weight  weightCopies
	held    heldWeight
	delayed [3]delayedScale // by Operand
}

// NewLinear returns a layer whose weight and bias are zero. Its parameters are
// name.weight and name.bias.
func NewLinear(name string, in, out int, bias bool) *Linear {
	return NewFusedLinear(name, in, bias, Part{name, out})
}

// A Part is one of several projections of the same input that are computed as one.
type Part struct {
	Name string // its parameters are Name.weight and Name.bias
	Out  int
}

// NewFusedLinear returns a layer of several projections, whose outputs stand side
// by side: q, k and v of attention, gate and up of SwiGLU. Their weights are one
// matrix, one part below the other, and quantized as one, so that they share the
// scale of the whole tensor where there is one (Transformer Engine fuses them too).
// Params returns the parts.
func NewFusedLinear(name string, in int, bias bool, parts ...Part) *Linear {
	l := &Linear{Name: name, in: in}
	for _, p := range parts {
		l.out += p.Out
	}
	l.Weight = NewParam(name+".weight", l.out, in)
	if bias {
		l.Bias = NewParam(name+".bias", 1, l.out)
	}
	from := 0
	for _, p := range parts {
		to := from + p.Out
		w := l.Weight
		l.parts = append(l.parts, &Param{p.Name + ".weight", w.Value.View(from, to, 0, in), w.Grad.View(from, to, 0, in)})
		if b := l.Bias; bias {
			l.parts = append(l.parts, &Param{p.Name + ".bias", b.Value.View(0, 1, from, to), b.Grad.View(0, 1, from, to)})
		}
		from = to
	}
	return l
}

// Params returns the weight, and the bias where there is one, of each part.
func (l *Linear) Params() []*Param { return l.parts }

// WeightBytes returns the bytes of codes and scales of the copies of the weight that
// the layer keeps now, by direction.
func (l *Linear) WeightBytes() (rowwise, columnwise int) {
	return tensorBytes(l.weight.rowwise) + tensorBytes(l.held.codes), tensorBytes(l.weight.columnwise)
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
	if x.Cols != l.in {
		return fail(fmt.Errorf("the input has %d columns, the weight is %d×%d", x.Cols, l.out, l.in))
	}
	rows := x.Rows
	x = s.pad(x)
	if err := s.checkShape(Input, x); err != nil {
		return fail(err)
	}
	weight, err := l.forwardWeight(s, !s.Inference)
	if err != nil {
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
	y := tensor.New(x.Rows, l.out)
	if err := s.mul(y, Product{l.Name, recipe.Fprop, xr, weight}, o); err != nil {
		return fail(err)
	}
	s.Memory.give(xr)
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
	if saved == nil || saved.input == nil && saved.original == nil {
		return tensor.Dense{}, nothingSaved(l.Name)
	}
	if dy.Rows != saved.rows || dy.Cols != l.out {
		return fail(fmt.Errorf("the gradient is %d×%d, the output was %d×%d", dy.Rows, dy.Cols, saved.rows, l.out))
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
	weight, transient, err := l.backwardWeight(s)
	if err != nil {
		return fail(err)
	}
	dx := tensor.New(dy.Rows, l.in)
	if err := s.mul(dx, Product{l.Name, recipe.Dgrad, dyr, weight}, gemm.Options{}); err != nil {
		return fail(err)
	}
	if transient {
		s.discard(Weight, nil, weight)
	}
	s.Round(dx)
	if err := s.mul(l.Weight.Grad, Product{l.Name, recipe.Wgrad, dyc, saved.input}, gemm.Options{Accumulate: true}); err != nil {
		return fail(err)
	}
	if l.Bias != nil {
		addColumnSums(l.Bias.Grad.Row(0), dy, s.Threads)
	}
	s.discard(Grad, dyr, dyc)
	s.discard(Input, nil, saved.input)
	saved.input, saved.original = nil, nil
	return dx.View(0, rows, 0, dx.Cols), nil
}

// roundedBias returns the bias as it is added: in BF16 under every recipe but f32,
// as Transformer Engine casts it for low-precision products.
func (l *Linear) roundedBias(s *Scope) []float32 {
	b := l.Bias.Value.Clone()
	roundTo(b, s.Recipe.Activations, 1)
	return b.Data
}

// addColumnSums adds the sums of the columns of x to sums. Rows are summed in
// float64, first those of each chunk, and then the chunks, in order.
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
