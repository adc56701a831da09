package quant

import "github.com/microscale-go/microscale/internal/naming"

// The names of enumerations, as text: String returns the name, or the number of an unknown
// value; MarshalText and UnmarshalText return an error where there is no such value.
var (
	directionNames = []string{"rowwise", "columnwise"}
	searchNames    = []string{"none", "mse", "four-over-six", "four-over-six-mae"}
	scaleRuleNames = []string{"rceil", "floor", "ceil", "even", "round"}
)

// String returns the name, or the number of an unknown value.
func (d Direction) String() string { return naming.String("Direction", directionNames, d) }

// MarshalText returns the name.
func (d Direction) MarshalText() ([]byte, error) {
	return naming.Marshal("direction", directionNames, d)
}

// UnmarshalText sets d to the value of a name. Case is ignored.
func (d *Direction) UnmarshalText(text []byte) error {
	return naming.Unmarshal("direction", directionNames, d, text)
}

// String returns the name, or the number of an unknown value.
func (s Search) String() string { return naming.String("Search", searchNames, s) }

// MarshalText returns the name.
func (s Search) MarshalText() ([]byte, error) { return naming.Marshal("scale search", searchNames, s) }

// UnmarshalText sets s to the value of a name: none, mse, four-over-six or four-over-six-mae. Case
// is ignored.
func (s *Search) UnmarshalText(text []byte) error {
	return naming.Unmarshal("scale search", searchNames, s, text)
}

// String returns the name, or the number of an unknown value.
func (r ScaleRule) String() string { return naming.String("ScaleRule", scaleRuleNames, r) }

// MarshalText returns the name.
func (r ScaleRule) MarshalText() ([]byte, error) {
	return naming.Marshal("scale rule", scaleRuleNames, r)
}

// UnmarshalText sets r to the value of a name: rceil, floor, ceil, even or round. Case is ignored.
func (r *ScaleRule) UnmarshalText(text []byte) error {
	return naming.Unmarshal("scale rule", scaleRuleNames, r, text)
}

// ScaleRules returns the rules in their order.
func ScaleRules() []ScaleRule { return naming.Values[ScaleRule](scaleRuleNames) }

// Searches returns the searches in their order, NoSearch first.
func Searches() []Search { return naming.Values[Search](searchNames) }
