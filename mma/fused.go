package mma

import (
	"fmt"
	"math"
)

// fused is the rule of NVIDIA's units; see the package comment.
type fused struct {
	products int // of a group
	fraction int // F: terms are truncated to multiples of 2^(E-F)
	zero     int // e₀, the exponent of zero terms
	rounding
}

func (r fused) group() int { return r.products }

func (r fused) describe(u *Unit) string {
	return fmt.Sprintf("groups of %d products and C, cut toward zero to multiples of 2^(E-%d), zeros at 2^%d; sum rounded %s", u.Group,
		r.fraction, r.zero, r.rounding.describe())
}

func (r fused) add(g *group, c uint64, t *trace) uint64 {
	var buffer [maxGroup + 1]number
	terms := append(g.products(buffer[:0]), g.unit.Out.number(c))
	r.placeZeros(terms)
	return r.sum(terms, t.step(g, "products and C", labels{width: 1, names: []string{"C"}}))
}

// products appends the products of the group, with their scales.
func (g *group) products(terms []number) []number {
	u := g.unit
	scale := number{sig: 1}
	for i, a := range g.a {
		if u.Scale != nil && i%u.Block == 0 {
			scale = g.scale(i)
		}
		terms = append(terms, u.A.number(a).times(u.B.number(g.b[i])).times(scale))
	}
	return terms
}

// scale returns the product of the scales of both operands at element i.
func (g *group) scale(i int) number {
	u := g.unit
	return u.Scale.number(uint64(g.scaleA[i/u.Block])).times(u.Scale.number(uint64(g.scaleB[i/u.Block])))
}

// placeZeros gives zero terms the exponent e₀.
func (r fused) placeZeros(terms []number) {
	for i := range terms {
		if terms[i].sig == 0 {
			terms[i].exp = r.zero
		}
	}
}

// sum aligns the terms to the largest exponent, adds them, and rounds the sum.
func (r fused) sum(terms []number, s *Step) uint64 {
	if code, found := r.out.special(terms); found {
		return s.special(terms, r.out, code)
	}
	largest := terms[0].exp
	for _, n := range terms {
		largest = max(largest, n.exp)
	}
	unit := largest - r.fraction
	var sum int64
	for _, n := range terms {
		kept := towardZero(n.sig, n.exp-n.frac-unit)
		s.term(n, kept, unit)
		sum += kept
	}
	s.align(largest, unit, "toward zero", sum)
	return s.result(r.rounding.describe(), r.out, r.code(sum, unit))
}

// fusedFP4 is the rule of NVIDIA's FP4 units with block scales. A term is the exact dot product of
// 16 elements times both scales. Its exponent is that of the scales, or e₀ if all products or a
// scale are zero.
type fusedFP4 struct{ fused }

// exactDot is the number of elements of the exact dot products.
const exactDot = 16

func (r fusedFP4) describe(*Unit) string {
	return fmt.Sprintf("%d exact dot products of %d, times their scales, and C, cut toward zero to multiples of 2^(E-%d), zeros at 2^%d; "+
		"sum rounded %s",
		r.products/exactDot, exactDot, r.fraction, r.zero, r.rounding.describe())
}

func (r fusedFP4) add(g *group, c uint64, t *trace) uint64 {
	u := g.unit
	var buffer [maxGroup/exactDot + 1]number
	terms := buffer[:0]
	for first := 0; first < len(g.a); first += exactDot {
		n, zero := number{frac: 2 * u.A.Scalar.Mantissa}, true
		for i := first; i < first+exactDot; i++ {
			p := u.A.number(g.a[i]).times(u.B.number(g.b[i]))
			n.sig += p.sig << p.exp // E2M1's exponents are 0 to 2
			zero = zero && p.sig == 0
		}
		scale := g.scale(first)
		n = n.times(scale)
		if zero || scale.sig == 0 {
			n.exp = r.zero
		}
		terms = append(terms, n)
	}
	terms = append(terms, u.Out.number(c))
	r.placeZeros(terms[len(terms)-1:]) // a dot product that cancels to zero keeps its exponent
	return r.sum(terms, t.step(g, "dot products and C", labels{width: exactDot, names: []string{"C"}}))
}

// emulated is the rule of FP8 mma.sync on Hopper and Blackwell's data-center chips, which run it on
// the FP16 unit: the products with even k/2, then the others and that result, then C in one IEEE
// addition.
//
// Source: the recorded outputs of H100, H200 and B200. MMA-Sim does not model this. The recordings
// have no NaN and no infinity; the rule treats them as IEEE 754 does.
type emulated struct{ fused }

func (r emulated) describe(u *Unit) string {
	return fmt.Sprintf("per %d products: those with even k/2, then the others and that result, each cut toward zero to multiples of "+
		"2^(E-%d), zeros at 2^%d, sum rounded %s; then C in one IEEE addition", u.Group, r.fraction, r.zero, r.rounding.describe())
}

func (r emulated) add(g *group, c uint64, t *trace) uint64 {
	out := g.unit.Out
	var buffer, half [maxGroup + 1]number
	products := g.products(buffer[:0])
	var code uint64
	for h, index := range []func(int) int{firstPairs, secondPairs} {
		terms := half[:0]
		for i := range len(products) / 2 {
			terms = append(terms, products[index(i)])
		}
		terms = append(terms, out.number(code))
		r.placeZeros(terms)
		code = r.sum(terms, t.step(g, []string{"products with even k/2", "products with odd k/2 and that sum"}[h],
			labels{width: 1, index: index, names: []string{"sum"}}))
	}
	s := t.step(g, "that sum and C", labels{names: []string{"sum", "C"}})
	s.addend(out.Value(code))
	s.addend(out.Value(c))
	return s.result("IEEE addition, nearest even", out, addIEEE(out, code, c))
}

// firstPairs and secondPairs return the i-th index of those with even, and odd, k/2.
func firstPairs(i int) int  { return i/2*4 + i%2 }
func secondPairs(i int) int { return firstPairs(i) + 2 }

// addIEEE returns x + y, rounded to nearest even. The type is F16 or F32.
func addIEEE(t *Type, x, y uint64) uint64 {
	nx, ny := t.number(x), t.number(y)
	if code, found := t.special([]number{nx, ny}); found {
		return code
	}
	if t == f32 {
		return uint64(math.Float32bits(float32(t.Value(x)) + float32(t.Value(y))))
	}
	const unit = -24 // exponent of FP16's smallest subnormal: all its values are multiples of it
	return rne16.code(nx.sig<<(nx.exp-nx.frac-unit)+ny.sig<<(ny.exp-ny.frac-unit), unit)
}
