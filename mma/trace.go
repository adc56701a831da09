package mma

import (
	"fmt"
	"math"
)

// A Step is one addition of a dot product, as Unit.Explain returns it.
type Step struct {
	Title string // what is added: "k 0 to 31: products and C"
	Terms []Term

	// Where terms are aligned: the largest exponent E, the exponent of the unit
	// that they are cut to, and how they are cut ("toward zero", "down"). Cut is
	// empty for additions that IEEE 754 defines or that are exact.
	Exponent, Unit int
	Cut            string

	Sum      float64 // of what is kept of aligned terms
	Rounding string  // how the sum is rounded to the result; empty: not at all
	Value    float64 // of the result
	Code     uint64  // of the result, where it is rounded

	first  int
	labels labels
}

// A Term is one addend of a step.
type Term struct {
	Name     string  // "k 3", "k 16 to 31", "C"
	Value    float64 // exact
	Exponent int     // that the unit aligns it by
	Kept     float64 // what the alignment leaves of it
}

// labels say how the terms of a step are named.
type labels struct {
	width int           // products of a term; 0: only the names
	count int           // terms before the names
	index func(int) int // place of the i-th term's product in the group; nil: i
	names []string      // of the terms behind the products
}

// A trace collects the steps of a computation. A nil trace collects nothing:
// its steps are nil, and the methods of a nil Step do nothing.
type trace struct{ steps []*Step }

func (t *trace) step(g *group, title string, l labels) *Step {
	if t == nil {
		return nil
	}
	n := len(g.a)
	span := fmt.Sprintf("k %d", g.first)
	if n > 1 {
		span += fmt.Sprintf(" to %d", g.first+n-1)
	}
	if l.width > 0 {
		l.count = n / l.width
	}
	if l.index != nil {
		l.count /= 2
	}
	s := &Step{Title: span + ": " + title, first: g.first, labels: l}
	t.steps = append(t.steps, s)
	return s
}

// name returns the name of the i-th term.
func (s *Step) name(i int) string {
	l := s.labels
	switch {
	case i >= l.count:
		return l.names[i-l.count]
	case l.index != nil:
		return fmt.Sprintf("k %d", s.first+l.index(i))
	case l.width > 1:
		return fmt.Sprintf("k %d to %d", s.first+i*l.width, s.first+(i+1)*l.width-1)
	}
	return fmt.Sprintf("k %d", s.first+i)
}

// term records a term of which the alignment keeps kept·2^unit.
func (s *Step) term(n number, kept int64, unit int) {
	if s != nil {
		s.Terms = append(s.Terms, Term{s.name(len(s.Terms)), n.value(), n.exp, math.Ldexp(float64(kept), unit)})
	}
}

// addend records a term that is not aligned.
func (s *Step) addend(v float64) {
	if s != nil {
		s.Terms = append(s.Terms, Term{Name: s.name(len(s.Terms)), Value: v, Kept: v})
	}
}

// align records the alignment, and the sum of the kept terms.
func (s *Step) align(exponent, unit int, cut string, sum int64) {
	if s != nil {
		s.Exponent, s.Unit, s.Cut, s.Sum = exponent, unit, cut, math.Ldexp(float64(sum), unit)
		s.Value = s.Sum
	}
}

// result records how the sum becomes the code of the result, which it returns.
func (s *Step) result(how string, out *Type, code uint64) uint64 {
	if s != nil {
		s.Rounding, s.Code, s.Value = how, code, out.Value(code)
	}
	return code
}

// special records a sum of terms that are not all finite, and returns its code.
func (s *Step) special(terms []number, out *Type, code uint64) uint64 {
	if s == nil {
		return code
	}
	for _, n := range terms {
		s.addend(n.value())
	}
	return s.result("NaN and Inf decide, nothing is aligned", out, code)
}
