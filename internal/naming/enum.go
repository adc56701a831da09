// Package naming converts enumerations to and from text, by their lists of names, and finds names similar
// to an unknown one.
package naming

import (
	"fmt"
	"slices"
	"strings"
)

// String returns the name of e, or typ and the number of a value without a name.
func String[E ~uint8](typ string, names []string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", typ, uint8(e))
}

// Marshal returns the name of e. It returns an error for a value without a name; kind is the noun
// for the enumeration in that error.
func Marshal[E ~uint8](kind string, names []string, e E) ([]byte, error) {
	if int(e) >= len(names) {
		return nil, fmt.Errorf("%s: got %d, want 0 to %d", kind, uint8(e), len(names)-1)
	}
	return []byte(names[e]), nil
}

// Unmarshal sets e to the value of a name. Case is ignored. On error, e is unchanged.
func Unmarshal[E ~uint8](kind string, names []string, e *E, text []byte) error {
	i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, string(text)) })
	if i < 0 {
		return Unknown(kind, string(text), names)
	}
	*e = E(i)
	return nil
}

// Values returns all values with a name, in their order.
func Values[E ~uint8](names []string) []E {
	all := make([]E, len(names))
	for i := range all {
		all[i] = E(i)
	}
	return all
}
