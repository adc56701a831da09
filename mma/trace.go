package mma

import (
	"fmt"
	"math"
)

// A Step is one addition of a dot product. [Unit.Explain] returns it.
type Step struct {
	Title string // the addends: "k 0 to 31: products and C"
	Terms []Term

	// For aligned terms: their largest exponent E, the exponent of the unit to which the
	// alignment truncates them, and the direction ("toward zero", "down"). Cut is empty for
	// exact additions and those of IEEE 754.
	Exponent, Unit int
	Cut            string

	Sum      float64 // of the aligned terms after truncation
	Rounding string  // rounding of the sum to the result; empty if there is none
	Value    float64 // of the result
	Code     uint64  // of the result, if it is rounded

	first  int
	labels labels
}

// A Term is one addend of a step.
type Term struct {
	Name     string  // "k 3", "k 16 to 31", "C"
	Value    float64 // exact
	Exponent int     // in the alignment
	Kept     float64 // value after the alignment
}

// labels has the names of the terms of a step.
type labels struct {
	width int           // products of a term; 0: names only
	count int           // terms before the names
	index func(int) int // index in the group of the i-th term's product; nil: i
	names []string      // of the terms after the products
}

// A trace collects the steps of a computation. A nil trace collects nothing: its steps are nil, and
// methods of a nil Step do nothing.
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

// term records a term with the value kept·2^unit after the alignment.
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

// align records the alignment and the sum of the terms after it.
func (s *Step) align(exponent, unit int, cut string, sum int64) {
	if s != nil {
		s.Exponent, s.Unit, s.Cut, s.Sum = exponent, unit, cut, math.Ldexp(float64(sum), unit)
		s.Value = s.Sum
	}
}

// result records the rounding and the code of the result, and returns the code.
func (s *Step) result(how string, out *Type, code uint64) uint64 {
	if s != nil {
		s.Rounding, s.Code, s.Value = how, code, out.Value(code)
	}
	return code
}

// special records a sum with terms that are not finite, and returns its code.
func (s *Step) special(terms []number, out *Type, code uint64) uint64 {
	if s == nil {
		return code
	}
	for _, n := range terms {
		s.addend(n.value())
	}
	return s.result("NaN and Inf decide, nothing is aligned", out, code)
}
