package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// quantizers returns the quantizers of an operand of a linear layer under s: the recipe's, or a
// cast to Activations for high-precision products.
func (s *Scope) quantizers(o Operand) recipe.Operand {
	q := [...]recipe.Operand{Input: s.Recipe.Input, Weight: s.Recipe.Weight, Grad: s.Recipe.Grad}[o]
	cast := quant.Quantizer{Format: s.Recipe.Activations}
	if s.Calibrating || s.Recipe.HighPrecision[gemms[o][quant.Rowwise]] {
		q.Rowwise = cast
	}
	if s.Calibrating || s.Recipe.HighPrecision[gemms[o][quant.Columnwise]] {
		q.Columnwise = cast
	}
	return q
}

// quantize returns the requested copies of an operand, of the tokens of this rank: see gather.
func (l *Linear) quantize(s *Scope, o Operand, x tensor.Dense, rowwise, columnwise bool) (row, col *quant.Tensor, err error) {
	q := s.quantizers(o)
	var inverse *float32
	if s.Recipe.Delayed.Enabled() {
		inverse = l.delayed[o].take(s, o, x)
	}
	shared := columnwise && q.Shared()
	amaxes, err := l.commonAmaxes(s, o, q, x, [2]bool{rowwise || shared, columnwise && !shared})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o, err)
	}
	with := func(q quant.Quantizer, d quant.Direction) quant.Copy {
		w := quant.With{Threads: s.Threads, Into: s.Pool.take(q.Format, d, x), Amax: amaxes[d], FirstRow: l.firstRow(s, o, x),
			Columns: l.columnsOf(o)}
		if q.Format.PerTensor() {
			w.Inverse = inverse
		}
		if q.Rounding == format.Stochastic {
			w.Random = s.Random.stream(l.Name, o, d)
		}
		return quant.Copy{Quantizer: q, With: w}
	}
	switch {
	case shared && q.Rowwise.Search == quant.NoSearch && !l.gathers(s, o):
		r := with(q.Rowwise, quant.Rowwise)
		c := r // with the same random bits
		c.With.Into = s.Pool.take(q.Rowwise.Format, quant.Columnwise, x)
		row, col, err = quant.RowwiseColumnwise(x, r, c)
	case shared || !columnwise:
		c := with(q.Rowwise, quant.Rowwise)
		row, err = c.Quantizer.Rowwise(x, c.With)
	case !rowwise:
		c := with(q.Columnwise, quant.Columnwise)
		col, err = c.Quantizer.Columnwise(x, c.With)
	default:
		row, col, err = quant.RowwiseColumnwise(x, with(q.Rowwise, quant.Rowwise), with(q.Columnwise, quant.Columnwise))
	}
	if err == nil && shared && col == nil {
		if l.gathers(s, o) {
			col = row // gather transposes it
		} else {
			col, err = row.Transpose()
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o, err)
	}
	if s.Observer.Operand != nil {
		for d, t := range []*quant.Tensor{row, col} {
			if d == int(quant.Columnwise) && t != nil && t == row {
				if t, err = row.Transpose(); err != nil {
					return nil, nil, fmt.Errorf("%s: %w", o, err)
				}
			}
			if t != nil {
				s.Observer.Operand(Observation{l.Name, o, quant.Direction(d), gemms[o][d], x, t})
			}
		}
	}
	return row, col, nil
}

// discard returns the copies of an operand to the pool. They may be one (see gather).
func (s *Scope) discard(rowwise, columnwise *quant.Tensor) {
	s.Pool.put(rowwise)
	if columnwise != rowwise {
		s.Pool.put(columnwise)
	}
}

// checkShape returns an error if Transformer Engine would not quantize a tensor of the shape of
// x under the recipe.
func (s *Scope) checkShape(o Operand, x tensor.Dense) error {
	rows, cols := s.Recipe.Divisor()
	if s.Calibrating || x.Rows%rows == 0 && x.Cols%cols == 0 {
		return nil
	}
	hint := ""
	if x.Cols%cols == 0 && o != Weight {
		hint = fmt.Sprintf("; pad the tokens to a multiple of %d (Scope.Pad)", s.Recipe.Alignment())
	}
	return fmt.Errorf("recipe %s: %s: got %d×%d, want a multiple of %d×%d%s", s.Recipe.Name, o, x.Rows, x.Cols, rows, cols, hint)
}

// pad returns x, extended with rows of zeros to the recipe's alignment if the scope pads and
// ranks do not divide the tokens.
func (s *Scope) pad(x tensor.Dense) tensor.Dense {
	n := s.Recipe.Alignment()
	if !s.Pad || x.Rows%n == 0 || s.sequence() {
		return x
	}
	padded := tensor.New((x.Rows+n-1)/n*n, x.Cols)
	copyRows(padded, x)
	return padded
}
