package format

import (
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
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
	// ties to the even significand (E8M0: up); IEEE 754, OCP, hardware. PyTorch's E8M0 rounds all of (1, 1.5)·2^-127 up, too
	NearestEven    Rounding = iota
	HalfAway                // ties away from zero; microxcaling's "nearest"
	HalfTowardZero          // ties toward zero; ggml's FP4 tables
	TowardZero              // the code of smaller magnitude; PTX .rz
	Up                      // the code toward +Inf; PTX .rp
	Stochastic              // away from zero with a probability equal to the discarded fraction
)

var roundingNames = []string{"nearest-even", "half-away", "half-toward-zero", "toward-zero", "up", "stochastic"}

// String returns the text form, or "Rounding(N)" for a value without a name.
func (r Rounding) String() string { return naming.String("Rounding", roundingNames, r) }

// MarshalText returns the text form. It returns an error for a value without a name.
func (r Rounding) MarshalText() ([]byte, error) { return naming.Marshal("rounding", roundingNames, r) }

// UnmarshalText sets r from the text form, ignoring case. On error, r is unchanged.
func (r *Rounding) UnmarshalText(text []byte) error {
	return naming.Unmarshal("rounding", roundingNames, r, text)
}

// Overflow selects the code of infinities and of magnitudes that exceed the largest
// finite value after rounding. In a format without Inf, a NaN with its sign replaces it; in
// one without NaN, the largest value does. The text form is "saturate", "nonsaturating" or
// "saturate-finite".
type Overflow uint8

// The overflow policies.
const (
	Saturate       Overflow = iota // all to ±Max; PTX .satfinite, OFP8's saturating mode, PyTorch 2.15's cast to E4M3
	NonSaturating                  // all to ±Inf; OFP8's non-saturating mode, ml_dtypes' casts, PyTorch's to other FP8
	SaturateFinite                 // finite values to ±Max, Inf to ±Inf
)

var overflowNames = []string{"saturate", "nonsaturating", "saturate-finite"}

// overflowAliases maps other projects' names to overflow policies.
var overflowAliases = map[string]Overflow{"ofp8": NonSaturating, "ofp8-sat": Saturate, "satfinite": Saturate}

// String returns the text form, or "Overflow(N)" for a value without a name.
func (o Overflow) String() string { return naming.String("Overflow", overflowNames, o) }

// MarshalText returns the text form. It returns an error for a value without a name.
func (o Overflow) MarshalText() ([]byte, error) { return naming.Marshal("overflow", overflowNames, o) }

// UnmarshalText sets o from the text form, ignoring case. It also accepts "ofp8" and
// "ofp8-sat", the two modes of OFP8 1.0, and PTX's "satfinite". On error, o is unchanged.
func (o *Overflow) UnmarshalText(text []byte) error {
	if alias, ok := overflowAliases[strings.ToLower(string(text))]; ok {
		*o = alias
		return nil
	}
	return naming.Unmarshal("overflow", overflowNames, o, text)
}
