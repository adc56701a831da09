package format

import (
	"fmt"
	"strings"
)

// A Conversion is the behavior of an encoder. The zero value is that of PTX's
// cvt.rn.satfinite: nearest-even, saturating, canonical NaN.
type Conversion struct {
	Rounding Rounding
	Overflow Overflow
	NaN      NaN
}

// Rounding selects one of the two codes next to a value. Its text form is the name of
// the constant in lower case with hyphens, such as "nearest-even".
type Rounding uint8

// The rounding modes.
const (
	NearestEven    Rounding = iota // ties to the even significand (E8M0: up); IEEE 754, OCP, hardware
	HalfAway                       // ties away from zero; microxcaling's "nearest"
	HalfTowardZero                 // ties toward zero; ggml's FP4 tables
	TowardZero                     // the code of smaller magnitude; PTX .rz
	Up                             // the code toward +Inf; PTX .rp
	Stochastic                     // up with a probability equal to the discarded fraction
)

var roundingNames = names{"Rounding", "rounding", []string{"nearest-even", "half-away", "half-toward-zero", "toward-zero", "up", "stochastic"}}

// String returns the text form, or "Rounding(N)" for a value without a name.
func (r Rounding) String() string { return roundingNames.of(uint8(r)) }

// MarshalText returns the text form. It returns an error for a value without a name.
func (r Rounding) MarshalText() ([]byte, error) { return roundingNames.marshal(uint8(r)) }

// UnmarshalText sets r from the text form, ignoring case. On error, r is unchanged.
func (r *Rounding) UnmarshalText(text []byte) error {
	i, err := roundingNames.parse(string(text))
	if err == nil {
		*r = Rounding(i)
	}
	return err
}

// Overflow selects the code of infinities and of magnitudes that exceed the largest
// finite value after rounding. In a format without Inf, NaN replaces it; in one without
// NaN, the largest value does. The text form is "saturate", "nonsaturating" or
// "saturate-finite".
type Overflow uint8

// The overflow policies.
const (
	Saturate       Overflow = iota // all to ±Max; PTX .satfinite, OFP8's saturating mode, PyTorch 2.15's cast to E4M3
	NonSaturating                  // all to ±Inf; OFP8's non-saturating mode, ml_dtypes' casts, PyTorch's to other FP8
	SaturateFinite                 // finite values to ±Max, Inf to ±Inf
)

var overflowNames = names{"Overflow", "overflow", []string{"saturate", "nonsaturating", "saturate-finite"}}

// overflowAliases maps other projects' names to overflow policies.
var overflowAliases = map[string]Overflow{"ofp8": NonSaturating, "ofp8-sat": Saturate, "satfinite": Saturate}

// String returns the text form, or "Overflow(N)" for a value without a name.
func (o Overflow) String() string { return overflowNames.of(uint8(o)) }

// MarshalText returns the text form. It returns an error for a value without a name.
func (o Overflow) MarshalText() ([]byte, error) { return overflowNames.marshal(uint8(o)) }

// UnmarshalText sets o from the text form, ignoring case. It also accepts "ofp8" and
// "ofp8-sat", the two modes of OFP8 1.0, and PTX's "satfinite". On error, o is unchanged.
func (o *Overflow) UnmarshalText(text []byte) error {
	if alias, ok := overflowAliases[strings.ToLower(string(text))]; ok {
		*o = alias
		return nil
	}
	i, err := overflowNames.parse(string(text))
	if err == nil {
		*o = Overflow(i)
	}
	return err
}

// NaN selects the code of a NaN. The text form is "canonical", "keep-sign", "unchecked"
// or "opposite-zero".
type NaN uint8

// The NaN policies.
const (
	Canonical    NaN = iota // the NaN of all ones, positive; +Max in formats without NaN; PTX cvt
	KeepSign                // as Canonical, with the sign of the input; ml_dtypes' and PyTorch's fn casts
	Unchecked               // in formats without NaN, the bits as if they were finite; torchao's FP4 and FP6
	OppositeZero            // in formats without NaN, the zero of opposite sign; ml_dtypes' FP4 and FP6
)

var nanNames = names{"NaN", "NaN policy", []string{"canonical", "keep-sign", "unchecked", "opposite-zero"}}

// String returns the text form, or "NaN(N)" for a value without a name.
func (n NaN) String() string { return nanNames.of(uint8(n)) }

// MarshalText returns the text form. It returns an error for a value without a name.
func (n NaN) MarshalText() ([]byte, error) { return nanNames.marshal(uint8(n)) }

// UnmarshalText sets n from the text form, ignoring case. On error, n is unchanged.
func (n *NaN) UnmarshalText(text []byte) error {
	i, err := nanNames.parse(string(text))
	if err == nil {
		*n = NaN(i)
	}
	return err
}

// names holds the text forms of an enumeration by value.
type names struct {
	typ  string // the Go type
	kind string // in errors
	list []string
}

func (n names) of(value uint8) string {
	if int(value) >= len(n.list) {
		return fmt.Sprintf("%s(%d)", n.typ, value)
	}
	return n.list[value]
}

func (n names) marshal(value uint8) ([]byte, error) {
	if int(value) >= len(n.list) {
		return nil, fmt.Errorf("unknown %s: got %d, want less than %d", n.kind, value, len(n.list))
	}
	return []byte(n.list[value]), nil
}

func (n names) parse(text string) (int, error) {
	for i, name := range n.list {
		if strings.EqualFold(name, text) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q: use one of %s", n.kind, text, strings.Join(n.list, ", "))
}
