package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A ScaledLinear computes Y = X·Wᵀ + b with a weight that stays as it is stored, of which training changes the scales
// alone. With W = scale·code in a block, the gradient of the logarithm of its scale is
//
//	Σ over the block of dW∘W      dW = dYᵀ·X
//
// which does not depend on how scales are stored. X and dY are rounded to the recipe's Activations.
type ScaledLinear struct {
	Name   string
	Weight *quant.Tensor // out × in, rowwise, with blocks of one row; an unquantized weight has no gradient
	Bias   []float32     // of the outputs; nil: none

	// Grad has the gradients of the logarithms of the scales, in the shape of the scales. Backward adds to it, and makes it
	// if it is empty.
	Grad tensor.Dense

	columns *quant.Tensor // an unquantized Weight, for dgrad; nil: not made yet
}

// Check returns an error for a weight whose blocks have several rows, or a scale of several bytes.
func (l *ScaledLinear) Check() error {
	if f := l.Weight.Format; l.trains() && (!f.ByteScales() || f.Block.Rows != 1 || l.Weight.Direction != quant.Rowwise) {
		return fmt.Errorf("%s: scales of %s cannot be trained: want one of one byte for each block of a row", l.Name, f)
	}
	return nil
}

// trains reports whether the weight has scales.
func (l *ScaledLinear) trains() bool { return l.Weight.Format.Scaled() }

// Forward returns Y for x, tokens × in. saved is nil under Scope.Inference.
func (l *ScaledLinear) Forward(s *Scope, x tensor.Dense) (y tensor.Dense, saved Saved, err error) {
	fail := func(err error) (tensor.Dense, Saved, error) {
		return tensor.Dense{}, nil, fmt.Errorf("%s: forward: %w", l.Name, err)
	}
	row, col, err := s.casts(x, true, !s.Inference && l.trains())
	if err != nil {
		return fail(err)
	}
	o := gemm.Options{}
	if l.Bias != nil {
		o.Bias = append(o.Bias, l.Bias...)
		s.round(o.Bias)
	}
	y = s.Arena.Dense(x.Rows, l.Weight.Rows())
	if err := s.mul(y, Product{l.Name, recipe.Fprop, row, l.Weight}, o); err != nil {
		return fail(err)
	}
	s.Pool.put(row)
	s.Round(y)
	if s.Inference {
		return y, nil, nil
	}
	return y, &linearSaved{rows: x.Rows, input: col}, nil
}

// Backward returns dX for dy = dY and adds to the gradient of the scales. It consumes saved.
func (l *ScaledLinear) Backward(s *Scope, saved Saved, dy tensor.Dense) (tensor.Dense, error) {
	fail := func(err error) (tensor.Dense, error) {
		return tensor.Dense{}, fmt.Errorf("%s: backward: %w", l.Name, err)
	}
	kept, _ := saved.(*linearSaved)
	if kept == nil || l.trains() && kept.input == nil {
		return tensor.Dense{}, nothingSaved(l.Name)
	}
	if err := checkGradient(l.Name, dy, kept.rows, l.Weight.Rows()); err != nil {
		return tensor.Dense{}, err
	}
	row, col, err := s.casts(dy, true, l.trains())
	if err != nil {
		return fail(err)
	}
	weight, values := l.columns, tensor.Dense{}
	if weight == nil {
		values = s.Pool.scratch(l.Weight.Rows(), l.Weight.Cols())
		l.Weight.DequantizeRows(values, 0, s.Threads)
		if _, weight, err = s.casts(values, false, true); err != nil {
			return fail(err)
		}
	}
	dx := s.Arena.Dense(dy.Rows, l.Weight.Cols())
	if err := s.mul(dx, Product{l.Name, recipe.Dgrad, row, weight}, gemm.Options{}); err != nil {
		return fail(err)
	}
	s.Round(dx)
	s.Pool.put(row)
	if !l.trains() {
		l.columns = weight
		return dx, nil
	}
	s.Pool.put(weight)
	dw := s.Pool.product(values.Rows, values.Cols)
	if err := s.mul(dw, Product{l.Name, recipe.Wgrad, col, kept.input}, gemm.Options{}); err != nil {
		return fail(err)
	}
	l.addBlocks(dw, values, s.Threads)
	s.Pool.put(col, kept.input)
	kept.input = nil
	return dx, nil
}

// addBlocks adds the sums of dW∘W over blocks to Grad. Each is added in the order of its columns.
func (l *ScaledLinear) addBlocks(dw, w tensor.Dense, threads int) {
	if l.Grad.Data == nil {
		l.Grad = tensor.New(l.Weight.ScaleShape())
	}
	extent := l.Weight.Format.Block.Cols
	if extent == 0 {
		extent = w.Cols
	}
	parallel.For(w.Rows, parallel.RowGrain(2*w.Cols), threads, func(from, to int) {
		for i := from; i < to; i++ {
			g, d, v := l.Grad.Row(i), dw.Row(i), w.Row(i)
			for b := range g {
				end := min((b+1)*extent, len(v))
				g[b] += float32(dot(d[b*extent:end], v[b*extent:end]))
			}
		}
	})
}

// casts returns the requested copies of x in the recipe's Activations.
func (s *Scope) casts(x tensor.Dense, rowwise, columnwise bool) (row, col *quant.Tensor, err error) {
	copyOf := func(d quant.Direction) quant.Copy {
		q := quant.Quantizer{Format: s.Recipe.Activations}
		return quant.Copy{Quantizer: q, With: quant.With{Threads: s.Threads, Into: s.Pool.take(q.Format, d, x)}}
	}
	switch {
	case !columnwise:
		c := copyOf(quant.Rowwise)
		row, err = c.Quantizer.Rowwise(x, c.With)
	case !rowwise:
		c := copyOf(quant.Columnwise)
		col, err = c.Quantizer.Columnwise(x, c.With)
	default:
		row, col, err = quant.RowwiseColumnwise(x, copyOf(quant.Rowwise), copyOf(quant.Columnwise))
	}
	return row, col, err
}
