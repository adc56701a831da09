package nn

import (
	"errors"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A Split says which part of a linear layer each of several ranks has. Every operand is quantized to
// the values that one process gives it: scales of whole tensors come from the amax over the ranks,
// blocks do not extend over ranks, and random bits follow the element of the whole tensor.
type Split uint8

const (
	// SplitOutputs gives a rank rows of the weight, and so columns of Y and dY (column-parallel).
	// X is whole; dX is the sum over the ranks.
	SplitOutputs Split = iota + 1

	// SplitInputs gives a rank columns of the weight, and so columns of X and dX (row-parallel).
	// Y is the sum over the ranks; dY is whole. There is no bias.
	SplitInputs
)

var errDividedBias = errors.New("a bias is added once, but the ranks have parts of the sum: omit the bias, or divide the outputs")

// Divide makes l the part of rank rank of size ranks, which Scope.Ranks are in its passes. Each part of
// a fused layer is divided into equal runs of rows. Rows and columns of a rank are multiples of
// recipe.Recipe.PartMultiple.
func (l *Linear) Divide(by Split, rank, size int) error {
	if by == SplitInputs {
		if l.Bias != nil {
			return errDividedBias
		}
		for _, p := range l.parts {
			p.Place = Place{Rows: p.Value.Rows, Cols: size * l.in, Col: rank * l.in}
		}
		l.columns = &quant.Columns{Of: size * l.in, Runs: []quant.Run{{First: rank * l.in, N: l.in}}}
	} else {
		l.columns = &quant.Columns{Of: size * l.out}
		first := 0
		for i, p := range l.parts {
			if l.Bias != nil && i%2 == 1 { // after the weight of the part
				n := p.Value.Cols
				p.Place = Place{Rows: 1, Cols: size * n, Col: rank * n}
				continue
			}
			n := p.Value.Rows
			p.Place = Place{Rows: size * n, Cols: l.in, Row: rank * n}
			l.columns.Runs = append(l.columns.Runs, quant.Run{First: first + rank*n, N: n})
			first += size * n
		}
	}
	l.split = by
	return nil
}

// divides reports whether the ranks have different parts of an operand.
func (l *Linear) divides(s *Scope, o Operand) bool {
	whole := Input
	if l.split == SplitInputs {
		whole = Grad
	}
	return l.split != 0 && s.Ranks.Size() > 1 && o != whole
}

// columnsOf returns the columns that the rank has of an operand, nil if it has all.
func (l *Linear) columnsOf(s *Scope, o Operand) *quant.Columns {
	if o == Weight || !l.divides(s, o) {
		return nil
	}
	return l.columns
}

// commonAmaxes returns the amaxes over the ranks that copies of an operand are scaled by, by
// direction. They are nil for copies that need none, and where x is whole.
func (l *Linear) commonAmaxes(s *Scope, o Operand, q recipe.Operand, x tensor.Dense, wanted [2]bool) (amaxes [2]*float32, err error) {
	if !l.divides(s, o) || s.Recipe.Delayed.Enabled() {
		return amaxes, nil
	}
	values := make([]float32, 0, len(amaxes))
	for d, q := range []quant.Quantizer{q.Rowwise, q.Columnwise} {
		if !wanted[d] || !q.Format.NeedsAmax() {
			continue
		}
		if len(values) > 0 && !q.Hadamard && amaxes[quant.Rowwise] != nil {
			amaxes[d] = amaxes[quant.Rowwise]
			continue
		}
		amax, err := q.Amax(x, quant.Direction(d), s.Threads)
		if err != nil {
			return amaxes, err
		}
		values = append(values, amax)
		amaxes[d] = &values[len(values)-1]
	}
	return amaxes, s.maxRanks(values)
}
