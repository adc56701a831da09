package mma

import (
	"math"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/naming"
)

// A Type is the encoding of an operand, an accumulator or a scale. [Types] and [LookupType] return
// the only values. Compare them by pointer.
type Type struct {
	Name   string         // such as "e4m3", "tf32" and "ue8m0"
	Bytes  int            // bytes of a code in memory, little-endian; 1 for formats of at most 8 bits
	Scalar *format.Scalar // format of a code; nil for f64

	unread uint64   // low bits that the unit ignores
	table  []number // by code, for types of one byte
}

// The types of the table of models.
var (
	f64      = newType("f64", nil, 0)
	f32      = newType("f32", format.F32, 0)
	tf32     = newType("tf32", format.F32, 13) // FP32 of which the unit ignores the low 13 bits
	bf16     = newType("bf16", format.BF16, 0)
	f16      = newType("f16", format.FP16, 0)
	e4m3     = newType("e4m3", format.E4M3, 0)
	e5m2     = newType("e5m2", format.E5M2, 0)
	e3m2     = newType("e3m2", format.E3M2, 0)
	e2m3     = newType("e2m3", format.E2M3, 0)
	e2m1     = newType("e2m1", format.E2M1, 0)
	e4m3fnuz = newType("e4m3fnuz", format.E4M3FNUZ, 0)
	e5m2fnuz = newType("e5m2fnuz", format.E5M2FNUZ, 0)
	ue8m0    = newType("ue8m0", format.E8M0, 0)
	ue4m3    = newType("ue4m3", format.UE4M3, 0)
)

var types []*Type

func newType(name string, s *format.Scalar, unread int) *Type {
	t := &Type{Name: name, Bytes: 8, Scalar: s, unread: 1<<unread - 1}
	if s != nil {
		t.Bytes = (s.StoredBits() + 7) / 8
	}
	if t.Bytes == 1 {
		t.table = make([]number, 256)
		for code := range t.table {
			t.table[code] = t.decode(uint64(code))
		}
	}
	types = append(types, t)
	return t
}

// Types returns all types: f64, f32, tf32, bf16, f16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz,
// e5m2fnuz, and the scales ue8m0 and ue4m3.
func Types() []*Type { return append([]*Type(nil), types...) }

// LookupType returns the type with the given name, or with a name that [format.Lookup] accepts,
// such as "float8_e4m3fn". Case does not matter. For an unknown name, the error lists
// similar types, or all.
func LookupType(name string) (*Type, error) {
	s, err := format.Lookup(name)
	names := make([]string, len(types))
	for i, t := range types {
		if strings.EqualFold(t.Name, name) || err == nil && t.Scalar == s { // f32 comes before tf32
			return t, nil
		}
		names[i] = t.Name
	}
	return nil, naming.Unknown("operand type", name, names)
}

// String returns the type's name.
func (t *Type) String() string { return t.Name }

// assembly returns the name of the type in its vendor's instructions.
func (t *Type) assembly() string {
	switch t {
	case e4m3fnuz:
		return "fp8"
	case e5m2fnuz:
		return "bf8"
	}
	return t.Name
}

// Value returns the value of a code as the unit reads it: the unit ignores the low 13 bits of tf32.
func (t *Type) Value(code uint64) float64 {
	code &^= t.unread
	if t.Scalar == nil {
		return math.Float64frombits(code)
	}
	return float64(t.Scalar.Decode(uint32(code)))
}

// nan returns the code of the NaN that units return: all ones, sign 0.
func (t *Type) nan() uint64 { return 1<<(8*t.Bytes-1) - 1 }

// infinity returns the code of +Inf or -Inf. t must be a type of accumulators.
func (t *Type) infinity(negative bool) uint64 {
	if negative {
		return t.sign() | uint64(t.Scalar.MaxCode()+1)
	}
	return uint64(t.Scalar.MaxCode() + 1)
}

func (t *Type) sign() uint64 { return 1 << (8*t.Bytes - 1) }

// A number is a decoded operand, or a product: sig · 2^(exp-frac).
type number struct {
	sig  int64 // for an infinity, its sign
	exp  int   // exponent in the unit: for subnormals, that of the smallest normal
	frac int   // fraction bits of sig
	kind kind
}

// A kind is finite, Inf or NaN. A product has the larger kind of its operands.
type kind uint8

const (
	finite kind = iota
	infinite
	notANumber
)

// number decodes a code of any type but f64.
func (t *Type) number(code uint64) number {
	if t.table != nil {
		return t.table[code&0xff]
	}
	return t.decode(code &^ t.unread)
}

func (t *Type) decode(code uint64) number {
	if t.Scalar == nil {
		return number{}
	}
	f := t.Scalar
	width := f.Exponent + f.Mantissa
	magnitude := uint32(code & (1<<width - 1))
	negative := !f.Unsigned && code>>width&1 != 0
	field, m := int(magnitude>>f.Mantissa), int64(magnitude&(1<<f.Mantissa-1))
	n := number{frac: f.Mantissa}
	switch {
	case negative && magnitude == 0 && !f.HasNegativeZero():
		n.kind = notANumber
	case magnitude > f.MaxCode() && f.HasInf() && m == 0:
		n.kind, n.sig = infinite, 1
	case magnitude > f.MaxCode():
		n.kind = notANumber
	case field == 0 && !f.NoZero:
		n.sig, n.exp = m, 1-f.Bias
	default:
		n.sig, n.exp = m|1<<f.Mantissa, field-f.Bias
	}
	if negative {
		n.sig = -n.sig
	}
	return n
}

// times returns the product. Its significand is exact and not normalized.
func (n number) times(o number) number {
	p := number{n.sig * o.sig, n.exp + o.exp, n.frac + o.frac, max(n.kind, o.kind)}
	if p.kind == infinite && p.sig == 0 {
		p.kind = notANumber // Inf · 0
	}
	return p
}

// value returns the number as a float64, which represents every product of the table exactly.
func (n number) value() float64 {
	switch n.kind {
	case notANumber:
		return math.NaN()
	case infinite:
		return math.Inf(int(n.sig))
	}
	return math.Ldexp(float64(n.sig), n.exp-n.frac)
}

// special returns the code of the sum if a term is not finite. found is false if all are finite.
func (t *Type) special(terms []number) (code uint64, found bool) {
	positive, negative := false, false
	for _, n := range terms {
		switch {
		case n.kind == notANumber:
			return t.nan(), true
		case n.kind == infinite && n.sig > 0:
			positive = true
		case n.kind == infinite:
			negative = true
		}
	}
	switch {
	case positive && negative:
		return t.nan(), true
	case positive || negative:
		return t.infinity(negative), true
	}
	return 0, false
}
