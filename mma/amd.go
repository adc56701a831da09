package mma

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
)

// chain is a chain of IEEE fused multiply-adds in K order.
type chain struct{ out *Type }

func (chain) group() int { return 1 }

func (chain) describe(*Unit) string { return "IEEE fused multiply-adds in K order" }

func (r chain) add(g *group, c uint64, t *trace) uint64 {
	u := g.unit
	a, b := u.A.Value(g.a[0]), u.B.Value(g.b[0])
	var code uint64
	if r.out == f64 {
		code = math.Float64bits(math.FMA(a, b, math.Float64frombits(c)))
	} else {
		code = uint64(math.Float32bits(fma32(a, b, u.Out.Value(c))))
	}
	code = r.out.canonical(code)
	s := t.step(g, "product and C", labels{width: 1, names: []string{"C"}})
	s.addend(float64(a * b))
	s.addend(r.out.Value(c))
	return s.result("fused multiply-add, to the nearest "+r.out.Name, r.out, code)
}

// canonical returns the code, or for a NaN that of the NaN that units return.
func (t *Type) canonical(code uint64) uint64 {
	if v := t.Value(code); v != v {
		return t.nan()
	}
	return code
}

// fma32 returns a·b + c rounded once, for float32 values. It rounds the sum to odd in float64, whose
// bits suffice for a correct second rounding.
func fma32(a, b, c float64) float32 {
	p := float64(a * b) // exact
	s := float64(p + c)
	if s == 0 || math.IsInf(s, 0) || s != s {
		return float32(s)
	}
	v := s - p
	if rest := (p - (s - v)) + (c - v); rest != 0 {
		if n := math.Float64bits(s); n&1 == 0 {
			if (rest > 0) == (s > 0) {
				n++
			} else {
				n--
			}
			s = math.Float64frombits(n)
		}
	}
	return float32(s)
}

// exact is CDNA1's rule: the unit adds a group and C exactly and rounds once.
type exact struct{ products int }

func (r exact) group() int { return r.products }

func (r exact) describe(u *Unit) string {
	return fmt.Sprintf("groups of %d products and C added exactly, rounded once to the nearest %s", u.Group, u.Out)
}

// exactBits suffice for a sum of BF16 products and FP32: 2^-266 to 2^260.
const exactBits = 600

func (r exact) add(g *group, c uint64, t *trace) uint64 {
	u := g.unit
	s := t.step(g, "products and C", labels{width: 1, names: []string{"C"}})
	var buffer [maxGroup + 1]number
	terms := append(g.products(buffer[:0]), u.Out.number(c))
	if code, found := u.Out.special(terms); found {
		return s.special(terms, u.Out, code)
	}
	sum := new(big.Float).SetPrec(exactBits).SetFloat64(u.Out.Value(c))
	var product big.Float
	for i := range g.a {
		p := u.A.Value(g.a[i]) * u.B.Value(g.b[i]) // exact; -0 keeps its sign
		s.addend(p)
		sum.Add(sum, product.SetFloat64(p))
	}
	s.addend(u.Out.Value(c))
	v, _ := sum.Float32()
	return s.result("to the nearest "+u.Out.Name, u.Out, uint64(math.Float32bits(v)))
}

// tree is CDNA2's rule: the unit adds the products of a group in pairs, then the pairs, then C, and
// rounds each operation to FP32. Subnormal operands and C count as +0. Subnormal results are flushed
// to zeros of their sign.
type tree struct{ products int }

func (r tree) group() int { return r.products }

func (r tree) describe(u *Unit) string {
	return fmt.Sprintf("groups of %d products added pairwise, then C, each rounded to the nearest %s; subnormals flushed to zero", u.Group,
		u.Out)
}

func (r tree) add(g *group, c uint64, t *trace) uint64 {
	u := g.unit
	s := t.step(g, "pairs of products, then C", labels{width: 1, names: []string{"C"}})
	var sums [maxGroup]float32
	for i := range g.a {
		sums[i] = flushed(float32(u.A.normal(g.a[i]) * u.B.normal(g.b[i])))
		s.addend(float64(sums[i]))
	}
	for n := len(g.a); n > 1; n /= 2 {
		for i := range n / 2 {
			sums[i] = flushed(sums[2*i] + sums[2*i+1])
		}
	}
	v := u.Out.normal(c)
	s.addend(float64(v))
	code := uint64(math.Float32bits(flushed(v + sums[0])))
	return s.result("pairwise, each to the nearest "+u.Out.Name, u.Out, u.Out.canonical(code))
}

// normal returns the value of a code, or +0 for a subnormal.
func (t *Type) normal(code uint64) float32 {
	v := t.Scalar.Decode(uint32(code))
	if smallest := t.Scalar.SmallestNormal(); -smallest < v && v < smallest {
		return 0
	}
	return v
}

// flushed returns v, or for a subnormal the zero of its sign.
func flushed(v float32) float32 {
	if smallest := float32(0x1p-126); -smallest < v && v < smallest {
		return float32(math.Copysign(0, float64(v)))
	}
	return v
}

// cdna3 is the rule of CDNA3 and, with scales, of CDNA4: the unit aligns and adds the products,
// then that sum and C.
type cdna3 struct {
	products int
	halves   bool // FP8: products of even and odd index are added separately
}

const (
	cdna3Fraction = 24       // products and C are truncated to multiples of 2^(E-24)
	cdna3Sum      = 32       // the sum of products to 2^(E-32), before C is added
	cdna3Dropped  = 25       // FP8: a C below 2^(E-25) counts as zero
	cdna3Total    = 31       // the total to 31 fraction bits
	cdna3None     = -1 << 12 // the exponent of a sum without terms
)

func (r cdna3) group() int { return r.products }

func (r cdna3) describe(u *Unit) string {
	separately, dropped := "", ""
	if r.halves {
		separately, dropped = ", even and odd separately", fmt.Sprintf(" (C below 2^(E-%d) is zero)", cdna3Dropped)
	}
	return fmt.Sprintf("groups of %d products, cut toward zero to multiples of 2^(E-%d)%s; their sum and C cut down to 2^(E-%d) and "+
		"2^(E-%d)%s; total cut down to %d fraction bits, rounded to the nearest %s",
		u.Group, cdna3Fraction, separately, cdna3Sum, cdna3Fraction, dropped, cdna3Total, u.Out)
}

func (r cdna3) add(g *group, c uint64, t *trace) uint64 {
	out := g.unit.Out
	var buffer [maxGroup + 1]number
	products := g.products(buffer[:0])
	for i, p := range products {
		if p.sig != 0 && p.kind == finite && bits.Len64(uint64(max(p.sig, -p.sig)))-1+p.exp-p.frac > out.Scalar.Bias {
			products[i].kind = infinite // above the largest FP32
		}
	}
	nc := out.number(c)
	terms := append(products, nc)
	if code, found := out.special(terms); found {
		return t.step(g, "products and C", labels{width: 1, names: []string{"C"}}).special(terms, out, code)
	}

	sum, largest := r.dot(g, products, t)
	e := max(largest, nc.exp)
	unit := e - cdna3Sum
	keptSum := down(sum, largest-cdna3Fraction-unit)
	keptC := down(nc.sig, nc.exp-nc.frac-(e-cdna3Fraction)) << (cdna3Sum - cdna3Fraction)
	if r.halves && nc.exp < e-cdna3Dropped {
		keptC = 0
	}
	total := keptSum + keptC
	s := t.step(g, "sum of products, and C cut to 24 bits below E", labels{names: []string{"sum", "C"}})
	s.term(partialSum(sum, largest, e), keptSum, unit)
	s.term(nc, keptC, unit)
	s.align(e, unit, "down", total)
	if total != 0 {
		n := max(bits.Len64(uint64(max(total, -total)))-1+unit, 1-out.Scalar.Bias)
		total, unit = down(total, unit-(n-cdna3Total)), n-cdna3Total
	}
	return s.result(fmt.Sprintf("down to %d fraction bits, then to the nearest %s", cdna3Total, out), out, rne23.code(total, unit))
}

// dot returns the sum of the products in units of 2^(largest-24).
func (r cdna3) dot(g *group, products []number, t *trace) (sum int64, largest int) {
	if !r.halves {
		return alignProducts(g, t, products, every)
	}
	even, e0 := alignProducts(g, t, products, evenProducts)
	odd, e1 := alignProducts(g, t, products, oddProducts)
	largest = max(e0, e1)
	keptEven, keptOdd := down(even, e0-largest), down(odd, e1-largest)
	if largest > cdna3None {
		s := t.step(g, "both sums", labels{names: []string{"even", "odd"}})
		s.term(partialSum(even, e0, largest), keptEven, largest-cdna3Fraction)
		s.term(partialSum(odd, e1, largest), keptOdd, largest-cdna3Fraction)
		s.align(largest, largest-cdna3Fraction, "down", keptEven+keptOdd)
	}
	return keptEven + keptOdd, largest
}

// partialSum returns a sum in units of 2^(largest-24), as a term of an alignment to 2^e. A sum
// without terms is a zero that does not affect the alignment.
func partialSum(sum int64, largest, e int) number {
	if largest == cdna3None {
		largest = e
	}
	return number{sig: sum, exp: largest, frac: cdna3Fraction}
}

// A selection is every step-th product of a group from first on.
type selection struct {
	first, step int
	title       string
	index       func(int) int // in the group; nil: all
}

var (
	every        = selection{0, 1, "products", nil}
	evenProducts = selection{0, 2, "products of even k", func(i int) int { return 2 * i }}
	oddProducts  = selection{1, 2, "products of odd k", func(i int) int { return 2*i + 1 }}
)

// alignProducts adds the selected products, each truncated to a multiple of 2^(largest-24). Zeros
// do not count for the largest exponent, which is cdna3None if all are.
func alignProducts(g *group, t *trace, products []number, from selection) (sum int64, largest int) {
	largest = cdna3None
	for i := from.first; i < len(products); i += from.step {
		if products[i].sig != 0 {
			largest = max(largest, products[i].exp)
		}
	}
	if largest == cdna3None {
		return 0, largest
	}
	s := t.step(g, from.title, labels{width: 1, index: from.index})
	for i := from.first; i < len(products); i += from.step {
		p := products[i]
		if p.sig == 0 {
			p.exp = largest // no effect: zero stays zero
		}
		kept := towardZero(p.sig, p.exp-p.frac-(largest-cdna3Fraction))
		s.term(p, kept, largest-cdna3Fraction)
		sum += kept
	}
	s.align(largest, largest-cdna3Fraction, "toward zero", sum)
	return sum, largest
}
