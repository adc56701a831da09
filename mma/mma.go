// Package mma computes what the matrix units of GPUs compute, bit for bit: one
// dot product of the operands' codes and an accumulator, with the alignment,
// truncation and rounding of the unit.
//
// A [Model] is a row of a table. A [Unit] is a model for given operand types, and [Unit.Dot] is
// the arithmetic. [Unit.Mul] computes matrices of dot products, many at a time for units with FP32
// results: at more than a hundred times the speed of Dot with AVX-512. An [Accumulator] is how a whole
// matrix product adds: package gemm takes it.
//
// The rules of NVIDIA and CDNA3 use integer arithmetic. Rules that IEEE 754 defines (FP32, FP64,
// CDNA2) use floating-point operations, and CDNA1's exact sum a big.Float.
//
// # NVIDIA
//
// A unit adds its products in groups, in K order. The result of a group is the
// accumulator C of the next. Within a group:
//
//  1. An operand is significand · 2^exponent with 1 ≤ |significand| < 2. A
//     subnormal keeps the exponent of the smallest normal, and |significand| < 1.
//  2. A term is the product of two significands, not normalized, and the sum of
//     their exponents, plus the exponents of both E8M0 scales. C is a term too.
//     A zero term has the fixed exponent e₀.
//  3. E is the largest exponent of the terms. Every term is cut toward zero to a
//     multiple of 2^(E-F). Their sum is exact.
//  4. The sum is rounded: toward zero to FP32 with 23 fraction bits, or with 13,
//     or to the nearest FP16 (ties to even). Overflow gives ±Inf. Zero is +0.
//  5. A NaN among the terms, Inf·0 or Inf-Inf gives the positive NaN of all ones.
//     Otherwise a sum with an infinity is that infinity.
//
// FP4 units with block scales add four exact dot products of 16 elements and C. The exponent of
// such a term is that of its scales and does not depend on the dot product. FP8 mma.sync of Hopper
// and of Blackwell's data-center chips runs on the FP16 unit: two groups of 16, then C in one IEEE
// addition.
//
// # AMD
//
//   - CDNA1 adds groups and C exactly and rounds once.
//   - CDNA2 adds pairs of FP32 products in a tree, each addition rounded, with
//     subnormal operands and results flushed to zero.
//   - CDNA3 aligns the products of a group, cut toward zero to 24 bits below the
//     largest; then it aligns that sum and C, both rounded down.
//   - FP32 and FP64 are chains of fused multiply-adds.
//   - CDNA4's block-scaled unit is CDNA3's rule with scales. It was not compared with
//     hardware; see Model.Evidence.
//
// Sources: X. Xie et al., MMA-Sim 2.1.1 (PyPI mmasim), the outputs of eight GPUs
// recorded in MATLAB-tensor-core (north-numerical-computing, commit b12b5a7), PTX
// ISA 9 and AMD's CDNA ISA documents for names and shapes.
package mma

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
)

// A Model is a kind of matrix unit: a row of the table. [Models] and [Lookup] return the only
// values.
type Model struct {
	Name     string // such as "hopper-wgmma"
	Device   string // chips with the unit
	Evidence string // hardware or software that the model was compared with

	modes []mode
}

// A mode is a set of operand types with one rule.
type mode struct {
	types        []*Type       // of A and B
	mixed        bool          // A and B may differ
	scales       []*Type       // formats of block scales, the default first; none: unscaled
	block        int           // elements that share a scale
	rules        []outputRule  // the default output first
	instructions []instruction // the usual one first
}

// An instruction adds k products to each result. In its name, {a}, {b}, {d} and {s} are
// placeholders of the types of A, B, the result and the scales.
type instruction struct {
	k    int
	name string
}

// An outputRule is the rule of a mode for results of one type.
type outputRule struct {
	out *Type
	rule
}

// Models returns all models: NVIDIA, then AMD, each from the oldest on.
func Models() []*Model { return slices.Clone(models) }

// Lookup returns the model with the given name, ignoring case. For an unknown name, the error
// lists similar models, or all.
func Lookup(name string) (*Model, error) { return lookup(name, "") }

// lookup is Lookup where another name, or, is accepted, too.
func lookup(name, or string) (*Model, error) {
	names := make([]string, len(models))
	for i, m := range models {
		if strings.EqualFold(m.Name, name) {
			return m, nil
		}
		names[i] = m.Name
	}
	return nil, &naming.UnknownError{Kind: "model", Name: name, Choices: names, Or: or}
}

// String returns the model's name.
func (m *Model) String() string { return m.Name }

// A Unit is a model for given operand types. [Model.Unit] creates it. Do not modify its fields.
type Unit struct {
	Model *Model
	A, B  *Type // of the operands
	Out   *Type // of C and of the result
	Scale *Type // of the block scales; nil: unscaled
	Block int   // elements that share a scale; 0: unscaled
	K     int   // products of one instruction
	Group int   // products of one fused addition, at most K

	mode *mode
	rule rule
}

// Options select a unit of a model. A is required. The default of B is A, that of Scale the first
// scale type of the mode, and that of Out f32 (f64 for f64 operands). K is the number of products
// of an instruction; 0 means that of the model's usual one.
type Options struct {
	A, B, Scale, Out *Type
	K                int
}

// Unit returns the model's unit for the given types. For an unsupported combination, the error
// lists the supported ones.
func (m *Model) Unit(o Options) (*Unit, error) {
	if o.A == nil {
		return nil, fmt.Errorf("unit of %s: Options.A is nil: use %s", m, m.operands())
	}
	if o.B == nil {
		o.B = o.A
	}
	fits := false // the operands
	var problem error
	for i := range m.modes {
		mode := &m.modes[i]
		if !mode.takes(o.A, o.B) {
			continue
		}
		fits = true
		u, err := mode.unit(m, o)
		if err == nil {
			return u, nil
		}
		if problem == nil {
			problem = err
		}
	}
	if !fits {
		return nil, fmt.Errorf("%s: unsupported operands %s×%s: use %s", m, o.A, o.B, m.operands())
	}
	return nil, problem
}

func (d *mode) takes(a, b *Type) bool {
	return slices.Contains(d.types, a) && slices.Contains(d.types, b) && (a == b || d.mixed)
}

// unit implements Model.Unit for a mode that supports the operands.
func (d *mode) unit(m *Model, o Options) (*Unit, error) {
	u := &Unit{Model: m, A: o.A, B: o.B, Block: d.block, K: o.K, mode: d}
	switch {
	case len(d.scales) == 0 && o.Scale != nil:
		return nil, fmt.Errorf("%s: got scales of %s, want none: these operands have no block scales", m, o.Scale)
	case len(d.scales) > 0 && o.Scale == nil:
		u.Scale = d.scales[0]
	case len(d.scales) > 0 && !slices.Contains(d.scales, o.Scale):
		return nil, fmt.Errorf("%s: unsupported scales %s: use %s", m, o.Scale, list(d.scales, " or "))
	default:
		u.Scale = o.Scale
	}
	if o.Out == nil {
		o.Out = d.rules[0].out
	}
	i := slices.IndexFunc(d.rules, func(r outputRule) bool { return r.out == o.Out })
	if i < 0 {
		return nil, fmt.Errorf("%s: unsupported result %s of %s×%s: use %s", m, o.Out, o.A, o.B, list(d.outputs(), " or "))
	}
	u.Out, u.rule = d.rules[i].out, d.rules[i].rule
	if ks := d.ks(); u.K == 0 {
		u.K = ks[0]
	} else if !slices.Contains(ks, u.K) {
		return nil, fmt.Errorf("%s: no instruction for %s×%s has K = %d: use %s", m, o.A, o.B, o.K,
			strings.Trim(strings.ReplaceAll(fmt.Sprint(ks), " ", ", "), "[]"))
	}
	u.Group = min(u.K, u.rule.group())
	return u, nil
}

// ks returns the K of each instruction, that of the usual one first.
func (d *mode) ks() []int {
	var ks []int
	for _, i := range d.instructions {
		if !slices.Contains(ks, i.k) {
			ks = append(ks, i.k)
		}
	}
	return ks
}

func (d *mode) outputs() []*Type {
	outs := make([]*Type, len(d.rules))
	for i, r := range d.rules {
		outs[i] = r.out
	}
	return outs
}

// A Mode is a set of types that a model supports with one rule.
type Mode struct {
	Types   []*Type // of A and B
	Mixed   bool    // A and B may differ
	Scales  []*Type // formats of block scales, the default first; none: unscaled
	Block   int     // elements that share a scale; 0: unscaled
	Results []*Type // of C and the result, the default first
	K       []int   // products of each instruction, those of the usual one first
}

// Modes returns the modes of the model.
func (m *Model) Modes() []Mode {
	list := make([]Mode, len(m.modes))
	for i, d := range m.modes {
		list[i] = Mode{slices.Clone(d.types), d.mixed, slices.Clone(d.scales), d.block, d.outputs(), d.ks()}
	}
	return list
}

// Units returns the units of the model for all combinations of operands, scales and results, each
// with the usual K.
func (m *Model) Units() []*Unit {
	var units []*Unit
	for i := range m.modes {
		d := &m.modes[i]
		scales := d.scales
		if len(scales) == 0 {
			scales = []*Type{nil}
		}
		for _, a := range d.types {
			for _, b := range d.types {
				for _, scale := range scales {
					for _, out := range d.outputs() {
						if u, err := m.Unit(Options{A: a, B: b, Scale: scale, Out: out}); err == nil && u.mode == d {
							units = append(units, u)
						}
					}
				}
			}
		}
	}
	return units
}

// operands lists the operands of all modes: "f16×f16; any two of e4m3, e5m2".
func (m *Model) operands() string {
	var texts []string
	for _, d := range m.modes {
		for _, t := range d.operands() {
			if !slices.Contains(texts, t) {
				texts = append(texts, t)
			}
		}
	}
	return strings.Join(texts, "; ")
}

func (d *mode) operands() []string {
	if d.mixed {
		return []string{"any two of " + list(d.types, ", ")}
	}
	var texts []string
	for _, t := range d.types {
		texts = append(texts, t.Name+"×"+t.Name)
	}
	return texts
}

func list(types []*Type, separator string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	return strings.Join(names, separator)
}

// Ks returns the K of each of the unit's instructions, that of the usual one first.
func (u *Unit) Ks() []int { return u.mode.ks() }

// Rule describes in one line how the unit adds a group of products.
func (u *Unit) Rule() string { return u.rule.describe(u) }

// Instructions returns the names of the instructions with the unit's K and types. They omit
// dimensions that do not affect results: N of wgmma, M and N of tcgen05.mma.
func (u *Unit) Instructions() []string {
	scale := ""
	if u.Scale != nil {
		scale = u.Scale.Name
	}
	r := strings.NewReplacer("{d}", u.Out.Name, "{a}", u.A.assembly(), "{b}", u.B.assembly(), "{s}", scale)
	var names []string
	for _, i := range u.mode.instructions {
		if i.k == u.K {
			names = append(names, r.Replace(i.name))
		}
	}
	return names
}

// Scales returns the number of scales of each operand for k products.
func (u *Unit) Scales(k int) int {
	if u.Scale == nil {
		return 0
	}
	return k / u.Block
}

// Dot returns the code of c + Σ a[i]·b[i] as the unit computes it. a and b hold codes of u.A and
// u.B in K order, and c is a code of u.Out. Each u.K products are one instruction, whose result is
// the accumulator of the next. scaleA and scaleB hold one code of u.Scale for each u.Block
// elements; they are nil for units without scales. Dot ignores bits above a type's width.
//
// Dot panics unless a and b have the same length, a multiple of u.K, and scaleA and scaleB have
// u.Scales(len(a)) elements.
func (u *Unit) Dot(a, b []uint64, c uint64, scaleA, scaleB []byte) uint64 {
	return u.dot(a, b, c, scaleA, scaleB, nil)
}

// Explain returns the result of Dot and every step of the computation.
func (u *Unit) Explain(a, b []uint64, c uint64, scaleA, scaleB []byte) (uint64, []*Step) {
	var t trace
	result := u.dot(a, b, c, scaleA, scaleB, &t)
	return result, t.steps
}

func (u *Unit) dot(a, b []uint64, c uint64, scaleA, scaleB []byte, t *trace) uint64 {
	if len(a)%u.K != 0 || len(b) != len(a) {
		panic(fmt.Sprintf("mma: got %d codes of a and %d of b, want the same multiple of K = %d", len(a), len(b), u.K))
	}
	if n := u.Scales(len(a)); len(scaleA) != n || len(scaleB) != n {
		panic(fmt.Sprintf("mma: got %d scales of a and %d of b, want %d each", len(scaleA), len(scaleB), n))
	}
	for i := 0; i < len(a); i += u.Group {
		g := group{unit: u, first: i, a: a[i : i+u.Group], b: b[i : i+u.Group]}
		if u.Scale != nil {
			from, to := i/u.Block, (i+u.Group)/u.Block
			g.scaleA, g.scaleB = scaleA[from:to], scaleB[from:to]
		}
		c = u.rule.add(&g, c, t)
	}
	return c
}

// A rule is the arithmetic of one fused addition.
type rule interface {
	group() int                              // products of a fused addition
	add(g *group, c uint64, t *trace) uint64 // c plus the products of g
	describe(u *Unit) string                 // in one line
}

// A group is the operands of one fused addition.
type group struct {
	unit           *Unit
	first          int // index of a[0] among the products
	a, b           []uint64
	scaleA, scaleB []byte
}

// maxGroup is the maximum number of products of a fused addition in the table.
const maxGroup = 64
