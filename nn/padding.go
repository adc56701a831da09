package nn

import (
	"fmt"

	"github.com/microscale-go/microscale/tensor"
)

// padding reports whether row i of rows is padding.
func (s *Scope) padding(i, rows int) bool {
	if s.Lengths == nil {
		return false
	}
	longest := rows / len(s.Lengths)
	return i%longest >= s.Lengths[i/longest]
}

// ClearPadding sets the rows of x that are padding to zero.
func (s *Scope) ClearPadding(x tensor.Dense) {
	if s.Lengths == nil {
		return
	}
	for i := range x.Rows {
		if s.padding(i, x.Rows) {
			clear(x.Row(i))
		}
	}
}

// CheckLengths returns an error unless Lengths are nil or those of batch sequences of at most longest
// tokens.
func (s *Scope) CheckLengths(batch, longest int) error {
	if s.Lengths == nil {
		return nil
	}
	if len(s.Lengths) != batch {
		return fmt.Errorf("got lengths of %d sequences, want %d", len(s.Lengths), batch)
	}
	for i, n := range s.Lengths {
		if n < 0 || n > longest {
			return fmt.Errorf("the length of sequence %d is %d, want 0 to %d", i, n, longest)
		}
	}
	return nil
}
