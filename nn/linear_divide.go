package nn

import (
	"errors"
	"fmt"

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
	// X is whole; dX is the sum over the ranks. With Ranks.Sequence, a rank has its tokens of X and
	// of dX: the quantized X is gathered.
	SplitOutputs Split = iota + 1

	// SplitInputs gives a rank columns of the weight, and so columns of X and dX (row-parallel).
	// Y is the sum over the ranks; dY is whole. There is no bias. With Ranks.Sequence, a rank has
	// its tokens of Y and of dY: the quantized dY is gathered.
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
		l.columns = &quant.Columns{Of: size * l.in, Ranges: [][2]int{{rank * l.in, (rank + 1) * l.in}}}
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
			l.columns.Ranges = append(l.columns.Ranges, [2]int{first + rank*n, first + (rank+1)*n})
			first += size * n
		}
	}
	l.split = by
	return nil
}

// undivided returns the operand that has all rows and columns of the weight's other dimension.
func (l *Linear) undivided() Operand {
	if l.split == SplitInputs {
		return Grad
	}
	return Input
}

// gathers reports whether ranks have different tokens of an operand, and products need all.
func (l *Linear) gathers(s *Scope, o Operand) bool {
	return l.split != 0 && s.sequence() && o == l.undivided()
}

// tokens returns the number of tokens of an operand in products, for x, those of this rank.
func (l *Linear) tokens(s *Scope, o Operand, x tensor.Dense) int {
	if l.gathers(s, o) {
		return x.Rows * s.Ranks.Size()
	}
	return x.Rows
}

// divides reports whether the ranks have different parts of an operand.
func (l *Linear) divides(s *Scope, o Operand) bool {
	return l.split != 0 && s.Ranks.Size() > 1 && (o != l.undivided() || s.Ranks.Sequence)
}

// columnsOf returns the columns that the rank has of an operand, nil if it has all.
func (l *Linear) columnsOf(o Operand) *quant.Columns {
	if l.split == 0 || o == Weight || o == l.undivided() {
		return nil
	}
	return l.columns
}

// firstRow returns the row of the operand where x begins.
func (l *Linear) firstRow(s *Scope, o Operand, x tensor.Dense) int {
	if !l.gathers(s, o) {
		return 0
	}
	return s.Ranks.Rank() * x.Rows
}

// gather returns a copy of an operand of which ranks have different tokens, of all tokens; other
// copies as they are. A columnwise copy that is the transpose of the rowwise one travels rowwise.
func (l *Linear) gather(s *Scope, o Operand, d quant.Direction, t *quant.Tensor) (*quant.Tensor, error) {
	if t == nil || !l.gathers(s, o) {
		return t, nil
	}
	whole, err := s.gatherCodes(t)
	if q := s.quantizers(o); err == nil && d == quant.Columnwise && q.Shared() {
		whole, err = whole.Transpose()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return whole, nil
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
	return amaxes, s.maxRanks(TrafficAmaxes, values)
}
