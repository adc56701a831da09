package recipe

import (
	"fmt"
	"slices"
	"strings"
)

// nameOf returns the name of a value of an enumeration, or its type and number if the value has
// none.
func nameOf[E ~uint8](e E, names []string, kind string) string {
	if int(e) >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, uint8(e))
	}
	return names[e]
}

func marshal[E ~uint8](e E, names []string, what string) ([]byte, error) {
	if int(e) >= len(names) {
		return nil, fmt.Errorf("invalid %s %d", what, uint8(e))
	}
	return []byte(names[e]), nil
}

func unmarshal[E ~uint8](e *E, text []byte, names []string, what string) error {
	i := slices.Index(names, strings.ToLower(string(text)))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: use one of %s", what, text, strings.Join(names, ", "))
	}
	*e = E(i)
	return nil
}
