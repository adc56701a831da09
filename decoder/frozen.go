package decoder

import (
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// frozen is a linear layer whose weights are multiplied as they are stored.
type frozen struct {
	name  string
	parts []frozenPart // the rows of the layer, in order
	bias  []float32    // of all rows; nil: none

	last quantizedInput // of a session: its memory is reused for the next
}

// quantized reports whether a weight is in a block format.
func (f *frozen) quantized() bool {
	return slices.ContainsFunc(f.parts, func(p frozenPart) bool { return p.interleaved != nil || p.weight.Format.Scaled() })
}

// A frozenPart is the weight of one module of the checkpoint and the quantization of its input. A nil
// input casts to the recipe's Activations.
type frozenPart struct {
	weight      *quant.Tensor // nil: interleaved
	input       *activation
	interleaved *gemm.Interleaved
}

// tensor returns the weight, in new memory if it is interleaved.
func (p *frozenPart) tensor() *quant.Tensor {
	if p.interleaved != nil {
		return p.interleaved.Tensor()
	}
	return p.weight
}

func (p *frozenPart) rows() int {
	if p.interleaved != nil {
		return p.interleaved.Rows()
	}
	return p.weight.Rows()
}

func (p *frozenPart) bytes() int {
	if p.interleaved != nil {
		return p.interleaved.Bytes()
	}
	return len(p.weight.Codes) + len(p.weight.Scales) + 4*len(p.weight.Scales32)
}

// multiply sets y to X·Wᵀ.
func (p *frozenPart) multiply(s *nn.Scope, y tensor.Dense, in quantizedInput) error {
	if in.terms == nil {
		return p.product(s, y, in.codes)
	}
	products := s.Arena.Dense(2*y.Rows, y.Cols)
	if err := p.product(s, products, in.codes); err != nil {
		return err
	}
	parallel.ForState(y.Rows, parallel.RowGrain(y.Cols), s.Threads, [2]tensor.Dense{y, products}, func(m [2]tensor.Dense, from, to int) {
		for i := from; i < to; i++ {
			row, first, second := m[0].Row(i), m[1].Row(i), m[1].Row(m[0].Rows+i)
			for j := range row {
				row[j] = first[j] + second[j]
			}
		}
	})
	return nil
}

// product sets y to the product of quantized rows.
func (p *frozenPart) product(s *nn.Scope, y tensor.Dense, x *quant.Tensor) error {
	o := gemm.Options{Threads: s.Threads}
	if p.interleaved != nil {
		o.Accumulator = s.Recipe.Accumulator(recipe.Fprop, x.Format, p.interleaved.Format())
		return p.interleaved.Mul(y, x, o)
	}
	o.Accumulator = s.Recipe.Accumulator(recipe.Fprop, x.Format, p.weight.Format)
	return gemm.Mul(y, x, p.weight, o)
}

// forward returns X·Wᵀ. Consecutive parts with the same activation share one quantized input.
func (f *frozen) forward(s *nn.Scope, x tensor.Dense) (tensor.Dense, error) {
	rows := 0
	for _, p := range f.parts {
		rows += p.rows()
	}
	y := s.Arena.Dense(x.Rows, rows)
	rows = 0
	var input quantizedInput
	for i, p := range f.parts {
		if i == 0 || p.input != f.parts[i-1].input {
			var err error
			if input, err = p.input.quantize(s, x, f.reuse(s, x, p.input)); err != nil {
				return tensor.Dense{}, fmt.Errorf("%s: %w", f.name, err)
			}
			if s.Arena != nil && x.Rows <= arenaTokens { // more would outweigh the weights
				f.last = quantizedInput{codes: input.codes, terms: input.terms}
			}
			input.observe(s, f.name, x)
		}
		part := y.View(0, x.Rows, rows, rows+p.rows())
		if err := p.multiply(s, part, input); err != nil {
			return tensor.Dense{}, fmt.Errorf("%s: %w", f.name, err)
		}
		input.scale(part)
		rows += part.Cols
	}
	f.addBias(s, y)
	s.Round(y)
	return y, nil
}

// reuse returns the memory for the codes of x, if there is some. Without an arena, somebody may keep the last.
func (f *frozen) reuse(s *nn.Scope, x tensor.Dense, a *activation) (last quantizedInput) {
	t, residual := f.last.codes, a != nil && a.residual
	if s.Arena == nil || t == nil || t.Format.Name != a.formatUnder(s).Name || t.Cols() != x.Cols || residual != (f.last.terms != nil) {
		return last
	}
	if rows := t.Rows(); rows == x.Rows && !residual || rows == 2*x.Rows && residual {
		last.codes, last.terms = t, f.last.terms
	}
	return last
}

// addBias adds the biases, rounded to the recipe's Activations, to each row.
func (f *frozen) addBias(s *nn.Scope, y tensor.Dense) {
	if f.bias == nil {
		return
	}
	bias := tensor.Of(1, len(f.bias), slices.Clone(f.bias))
	s.Round(bias)
	for i := range y.Rows {
		row := y.Row(i)
		for j, b := range bias.Data {
			row[j] += b
		}
	}
}

// An activation quantizes the input of a linear layer as the clients of a checkpoint do.
type activation struct {
	format quant.Format

	// scale is the stored decode scale of the whole tensor (input_scale, 1/input_global_scale). 0:
	// none is stored, and each token has its own scales.
	scale float32

	residual bool // as in Inputs
}

// activationFormat returns the format of dynamically quantized activations for weights of format f:
// the same elements and scales, and blocks within one token.
func activationFormat(f quant.Format) quant.Format {
	return withinTokens(f, quant.Shape{Rows: 1, Cols: f.Block.Cols})
}

// staticFormat returns the format of activations with a stored per-tensor scale for weights of
// format f: for NVFP4, the blocks keep their own scales; FP8 has no other scale. ok is false for
// formats without such a scale.
func staticFormat(f quant.Format) (_ quant.Format, ok bool) {
	if f.Global {
		return activationFormat(f), true
	}
	return withinTokens(f, quant.Shape{}), f.Scale == quant.FP8Tensor.Scale
}

// withinTokens returns f with another block shape: the row of the table of formats if there is one.
func withinTokens(f quant.Format, block quant.Shape) quant.Format {
	if f.Block == block || !f.Scaled() {
		return f
	}
	for _, named := range quant.Formats() {
		if named.Element == f.Element && named.Scale == f.Scale && named.Global == f.Global && named.Block == block {
			return named
		}
	}
	return quant.Format{Name: f.Name + "-token", Element: f.Element, Scale: f.Scale, Block: block, Global: f.Global}
}

// A quantizedInput is the input of a layer. If each token has its own global scale, tokens has a view
// of each row of codes with that scale, and the global scale of codes is 1: scale applies the scales
// to the rows of the product.
type quantizedInput struct {
	codes  *quant.Tensor
	tokens []*quant.Tensor

	// Of inputs with a residual, the halves of the rows of codes: the tokens, and what these round off, which is residual.
	terms    *[2]quant.Tensor
	residual tensor.Dense
}

// formatUnder returns the format of inputs; a nil activation casts to the recipe's Activations.
func (a *activation) formatUnder(s *nn.Scope) quant.Format {
	if a == nil {
		return s.Recipe.Activations
	}
	return a.format
}

// quantize quantizes x, tokens × in, into the memory of an input of that shape if there is one. The result for a
// token does not depend on other tokens.
func (a *activation) quantize(s *nn.Scope, x tensor.Dense, into quantizedInput) (in quantizedInput, err error) {
	q := quant.Quantizer{Format: a.formatUnder(s)}
	switch {
	case a == nil:
		in.codes, err = q.Rowwise(x, quant.With{Threads: s.Threads, Into: into.codes})
	case a.scale != 0:
		inverse := 1 / a.scale
		if in.codes, err = q.Rowwise(x, quant.With{Threads: s.Threads, Inverse: &inverse}); err != nil {
			return in, err
		}
		if a.format.Global { // the stored number, not the inverse of its inverse
			in.codes.Global = a.scale
		} else {
			in.codes.Scales32[0] = a.scale
		}
	case a.format.Global:
		return quantizeTokens(q, x)
	case a.residual:
		return quantizeResidual(s, q, x, into)
	default:
		in.codes, err = q.Rowwise(x, quant.With{Threads: s.Threads, Into: into.codes})
	}
	return in, err
}

// quantizeResidual quantizes x, then what that rounds off.
func quantizeResidual(s *nn.Scope, q quant.Quantizer, x tensor.Dense, in quantizedInput) (quantizedInput, error) {
	if in.codes == nil {
		codes, err := quant.NewTensor(q.Format, 2*x.Rows, x.Cols)
		if err != nil {
			return in, err
		}
		in.codes, in.terms = codes, &[2]quant.Tensor{*codes.ViewRows(0, x.Rows), *codes.ViewRows(x.Rows, 2*x.Rows)}
	}
	if _, err := q.Rowwise(x, quant.With{Threads: s.Threads, Into: &in.terms[0]}); err != nil {
		return in, err
	}
	in.residual = s.Arena.Dense(x.Rows, x.Cols)
	in.terms[0].DequantizeRows(in.residual, 0, s.Threads)
	parallel.ForState(x.Rows, parallel.RowGrain(x.Cols), s.Threads, [2]tensor.Dense{x, in.residual}, func(m [2]tensor.Dense, from, to int) {
		for i := from; i < to; i++ {
			rest := m[1].Row(i)
			for j, v := range m[0].Row(i) {
				rest[j] = v - rest[j]
			}
		}
	})
	_, err := q.Rowwise(in.residual, quant.With{Threads: s.Threads, Into: &in.terms[1]})
	return in, err
}

// quantizeTokens quantizes each row with its own global scale.
func quantizeTokens(q quant.Quantizer, x tensor.Dense) (in quantizedInput, err error) {
	if in.codes, err = quant.NewTensor(q.Format, x.Rows, x.Cols); err != nil {
		return in, err
	}
	codes, scales := in.codes.RowBytes(), len(in.codes.Scales)/max(x.Rows, 1)
	for i := range x.Rows {
		row := &quant.Tensor{
			Format: q.Format, Shape: []int{1, x.Cols},
			Codes: in.codes.Codes[i*codes : (i+1)*codes], Scales: in.codes.Scales[i*scales : (i+1)*scales],
		}
		if row, err = q.Rowwise(x.View(i, i+1, 0, x.Cols), quant.With{Threads: 1, Into: row}); err != nil {
			return in, err
		}
		in.codes.Amax = max(in.codes.Amax, row.Amax)
		in.tokens = append(in.tokens, row)
	}
	return in, nil
}

// observe passes the operand to the observer: token by token if each has its own global scale.
func (in *quantizedInput) observe(s *nn.Scope, module string, x tensor.Dense) {
	if s.Observer.Operand == nil {
		return
	}
	observe := func(source tensor.Dense, codes *quant.Tensor) {
		s.Observer.Operand(nn.Observation{Module: module, Operand: nn.Input, Source: source, Quantized: codes})
	}
	switch {
	case in.terms != nil:
		observe(x, &in.terms[0])
		observe(in.residual, &in.terms[1])
	case in.tokens == nil:
		observe(x, in.codes)
	}
	for i, row := range in.tokens {
		observe(x.View(i, i+1, 0, x.Cols), row)
	}
}

// scale multiplies the rows of a product by the global scales of their tokens.
func (in *quantizedInput) scale(y tensor.Dense) {
	for i, token := range in.tokens {
		row := y.Row(i)
		for j := range row {
			row[j] *= token.Global
		}
	}
}
