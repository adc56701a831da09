package quant

import (
	"fmt"
	"slices"
	"strings"
)

// The names of enumerations, as text: String returns the name, or the number of an unknown
// value; MarshalText and UnmarshalText return an error where there is no such value.
var (
	directionNames    = []string{"rowwise", "columnwise"}
	arithmeticNames   = []string{"encode-first", "encode-first-64", "decode-first", "decode-first-bf16", "block-only", "half-scale", "decode-first-typed"}
	nonFiniteNames    = []string{"tolerate", "poison", "poison-nan", "poison-zero"}
	negativeZeroNames = []string{"keep", "drop-input", "drop"}
	searchNames       = []string{"none", "mse", "four-over-six", "four-over-six-mae"}
	scaleRuleNames    = []string{"rceil", "floor", "ceil", "even", "round"}
)

func nameOf[E ~uint8](kind string, names []string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(e))
}

func marshal[E ~uint8](kind string, names []string, e E) ([]byte, error) {
	if int(e) >= len(names) {
		return nil, fmt.Errorf("%s: got %d, want 0 to %d", kind, uint8(e), len(names)-1)
	}
	return []byte(names[e]), nil
}

func unmarshal[E ~uint8](kind string, names []string, e *E, text []byte) error {
	i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, string(text)) })
	if i < 0 {
		return fmt.Errorf("unknown %s %q: use one of %s", kind, text, strings.Join(names, ", "))
	}
	*e = E(i)
	return nil
}

// String returns the name, or the number of an unknown value.
func (d Direction) String() string { return nameOf("Direction", directionNames, d) }

// MarshalText returns the name.
func (d Direction) MarshalText() ([]byte, error) { return marshal("direction", directionNames, d) }

// UnmarshalText sets d to the value of a name. Case is ignored.
func (d *Direction) UnmarshalText(text []byte) error {
	return unmarshal("direction", directionNames, d, text)
}

// String returns the name, or the number of an unknown value.
func (a Arithmetic) String() string { return nameOf("Arithmetic", arithmeticNames, a) }

// MarshalText returns the name.
func (a Arithmetic) MarshalText() ([]byte, error) { return marshal("arithmetic", arithmeticNames, a) }

// UnmarshalText sets a to the value of a name. Case is ignored.
func (a *Arithmetic) UnmarshalText(text []byte) error {
	return unmarshal("arithmetic", arithmeticNames, a, text)
}

// String returns the name, or the number of an unknown value.
func (n NonFinite) String() string { return nameOf("NonFinite", nonFiniteNames, n) }

// MarshalText returns the name.
func (n NonFinite) MarshalText() ([]byte, error) {
	return marshal("treatment of NaN and Inf", nonFiniteNames, n)
}

// UnmarshalText sets n to the value of a name. Case is ignored.
func (n *NonFinite) UnmarshalText(text []byte) error {
	return unmarshal("treatment of NaN and Inf", nonFiniteNames, n, text)
}

// String returns the name, or the number of an unknown value.
func (z NegativeZero) String() string { return nameOf("NegativeZero", negativeZeroNames, z) }

// MarshalText returns the name.
func (z NegativeZero) MarshalText() ([]byte, error) {
	return marshal("treatment of -0", negativeZeroNames, z)
}

// UnmarshalText sets z to the value of a name. Case is ignored.
func (z *NegativeZero) UnmarshalText(text []byte) error {
	return unmarshal("treatment of -0", negativeZeroNames, z, text)
}

// String returns the name, or the number of an unknown value.
func (s Search) String() string { return nameOf("Search", searchNames, s) }

// MarshalText returns the name.
func (s Search) MarshalText() ([]byte, error) { return marshal("scale search", searchNames, s) }

// UnmarshalText sets s to the value of a name: none, mse, four-over-six or four-over-six-mae. Case
// is ignored.
func (s *Search) UnmarshalText(text []byte) error {
	return unmarshal("scale search", searchNames, s, text)
}

// String returns the name, or the number of an unknown value.
func (r ScaleRule) String() string { return nameOf("ScaleRule", scaleRuleNames, r) }

// MarshalText returns the name.
func (r ScaleRule) MarshalText() ([]byte, error) { return marshal("scale rule", scaleRuleNames, r) }

// UnmarshalText sets r to the value of a name: rceil, floor, ceil, even or round. Case is ignored.
func (r *ScaleRule) UnmarshalText(text []byte) error {
	return unmarshal("scale rule", scaleRuleNames, r, text)
}

// ScaleRules returns the rules in their order.
func ScaleRules() []ScaleRule { return values[ScaleRule](scaleRuleNames) }

// Searches returns the searches in their order, NoSearch first.
func Searches() []Search { return values[Search](searchNames) }

func values[E ~uint8](names []string) []E {
	all := make([]E, len(names))
	for i := range all {
		all[i] = E(i)
	}
	return all
}
