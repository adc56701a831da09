package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// A test reports whether a value has a property. Most have no argument.
type test struct {
	arguments int
	holds     func(v, other any) (bool, error)
}

// typed is a test of a type.
func typed(holds func(v any) bool) test {
	return test{0, func(v, _ any) (bool, error) { return holds(v), nil }}
}

func compared(op string) test { return test{1, comparisons[op]} }

var tests map[string]test

// init sets the table, because the tests filter and test read it.
func init() {
	tests = map[string]test{
		"defined":   typed(func(v any) bool { _, ok := v.(*undefined); return !ok }),
		"undefined": typed(func(v any) bool { _, ok := v.(*undefined); return ok }),
		"none":      typed(func(v any) bool { return v == nil }),
		"boolean":   typed(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      typed(func(v any) bool { return v == true }),
		"false":     typed(func(v any) bool { return v == false }),
		"integer":   typed(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":     typed(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    typed(func(v any) bool { _, ok := number(v); return ok }),
		"string":    typed(func(v any) bool { _, ok := v.(string); return ok }),
		"mapping":   typed(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"callable":  typed(isCallable),
		"sequence":  typed(isSequence),
		"iterable": typed(func(v any) bool {
			_, ok := v.(*sequence)
			_, isLoop := v.(*loop)
			return ok || isLoop || isSequence(v)
		}),
		"lower":   typed(func(v any) bool { return hasOnly(str(v), isLower) }),
		"upper":   typed(func(v any) bool { return hasOnly(str(v), isUpper) }),
		"escaped": typed(func(any) bool { return false }),
		"filter":  typed(isFilter),
		"test":    typed(func(v any) bool { _, ok := tests[str(v)]; return ok }),
		"odd":     {0, func(v, _ any) (bool, error) { return divisible(v, int64(2), 1) }},
		"even":    {0, func(v, _ any) (bool, error) { return divisible(v, int64(2), 0) }},

		"divisibleby": {1, func(v, by any) (bool, error) { return divisible(v, by, 0) }},
		"sameas":      {1, func(v, other any) (bool, error) { return same(v, other), nil }},
		"in":          {1, func(v, all any) (bool, error) { return contains(all, v) }},
		"eq":          compared("=="), "equalto": compared("=="), "==": compared("=="), "ne": compared("!="), "!=": compared("!="),
		"lt": compared("<"), "lessthan": compared("<"), "<": compared("<"), "le": compared("<="), "<=": compared("<="),
		"gt": compared(">"), "greaterthan": compared(">"), ">": compared(">"), "ge": compared(">="), ">=": compared(">="),
	}
}

func applyTest(name string, v any, args []any, kwargs *Dict) (bool, error) {
	t, ok := tests[name]
	if !ok {
		return false, fmt.Errorf("unknown test %s", name)
	}
	if len(args) != t.arguments || len(kwargs.keys) > 0 {
		return false, fmt.Errorf("test %s has %d arguments, not %d", name, t.arguments, len(args)+len(kwargs.keys))
	}
	return t.holds(v, firstOf(args))
}

// isSequence reports whether v has a length and elements.
func isSequence(v any) bool {
	switch v := v.(type) {
	case string, *Dict, *undefined:
		return true
	case *sequence:
		return v.kind < view
	}
	return false
}

func isCallable(v any) bool {
	switch v.(type) {
	case *function, *loop, *undefined:
		return true
	}
	return false
}

// same reports whether a and b are one value: numbers and strings that are equal are.
func same(a, b any) bool {
	switch a.(type) {
	case nil, bool, int64, float64, string:
		return typeName(a) == typeName(b) && equal(a, b)
	}
	s, ok := a.(*sequence)
	t, ok2 := b.(*sequence)
	return a == b || ok && ok2 && s.kind == tuple && t.kind == tuple && len(s.items)+len(t.items) == 0
}

// divisible reports whether v modulo by is rest.
func divisible(v, by any, rest int64) (bool, error) {
	r, err := arithmetic("%", v, by)
	return err == nil && equal(r, rest), err
}

// isFilter reports whether Jinja2 has a filter of this name.
func isFilter(v any) bool {
	_, ok := filters[str(v)]
	return ok || slices.Contains(strings.Fields(unsupportedFilters), str(v))
}
