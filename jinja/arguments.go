package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// given are the arguments of a filter, a test or a method, by position. Those not given are absent.
type given []any

type absentType struct{}

var absent = absentType{}

// bind returns arguments in the order of parameters, which are names with spaces between. Those in
// brackets are optional: "old new [count]".
func bind(parameters string, args []any, kwargs *Dict) (given, error) {
	required, optional, _ := strings.Cut(strings.TrimSuffix(parameters, "]"), "[")
	minimum := len(strings.Fields(required))
	params := strings.Fields(required + optional)
	if len(args) > len(params) {
		return nil, tooMany(len(args), minimum, len(params))
	}
	g := make(given, len(params))
	for i := range g {
		g[i] = absent
	}
	copy(g, args)
	for i, k := range kwargs.keys {
		at := slices.Index(params, str(k))
		if at < 0 || g[at] != absent {
			return nil, fmt.Errorf("unexpected argument %s", k)
		}
		g[at] = kwargs.values[i]
	}
	if i := slices.Index(g[:minimum], any(absent)); i >= 0 {
		return nil, fmt.Errorf("argument %s is missing", params[i])
	}
	return g, nil
}

func tooMany(got, minimum, maximum int) error {
	want := "none"
	switch {
	case maximum > minimum:
		want = fmt.Sprintf("at most %d", maximum)
	case maximum > 0:
		want = strconv.Itoa(maximum)
	}
	plural := "s"
	if got == 1 {
		plural = ""
	}
	return fmt.Errorf("got %d argument%s, want %s", got, plural, want)
}

func (g given) has(i int) bool { return i < len(g) && g[i] != absent }

// or returns argument i, or a default.
func (g given) or(i int, v any) any {
	if g.has(i) {
		return g[i]
	}
	return v
}

// is returns the truth value of argument i, false without one.
func (g given) is(i int) bool { return truth(g.or(i, false)) }

// text returns argument i as a string.
func (g given) text(i int, v string) (string, error) {
	a := g.or(i, v)
	if s, ok := a.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("want a string as argument %d, not a value of type %s", i+1, typeName(a))
}

// integer returns argument i as an integer.
func (g given) integer(i int, v int64) (int64, error) {
	a := g.or(i, v)
	if n, ok := integer(a); ok {
		return n, nil
	}
	return 0, fmt.Errorf("want an integer as argument %d, not a value of type %s", i+1, typeName(a))
}
