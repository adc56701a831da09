package jinja

import (
	"fmt"
	"strings"
	"unicode"
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
		"callable":  typed(func(v any) bool { _, ok := v.(*function); return ok }),
		"sequence":  typed(isSequence),
		"iterable": typed(func(v any) bool {
			_, ok := v.(*sequence)
			_, isUndefined := v.(*undefined)
			return ok || isUndefined || isSequence(v)
		}),
		"lower":   typed(func(v any) bool { s := str(v); return hasCase(s) && strings.ToLower(s) == s }),
		"upper":   typed(func(v any) bool { s := str(v); return hasCase(s) && strings.ToUpper(s) == s }),
		"escaped": typed(func(any) bool { return false }),
		"filter":  typed(func(v any) bool { _, ok := filters[str(v)]; return ok }),
		"test":    typed(func(v any) bool { _, ok := tests[str(v)]; return ok }),
		"odd":     {0, func(v, _ any) (bool, error) { return divisible(v, int64(2), 1) }},
		"even":    {0, func(v, _ any) (bool, error) { return divisible(v, int64(2), 0) }},

		"divisibleby": {1, func(v, by any) (bool, error) { return divisible(v, by, 0) }},
		"sameas":      {1, func(v, other any) (bool, error) { return typeName(v) == typeName(other) && equal(v, other), nil }},
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
	case string, *Dict:
		return true
	case *sequence:
		return v.kind < view
	}
	return false
}

// divisible reports whether v modulo by is rest.
func divisible(v, by any, rest int64) (bool, error) {
	r, err := arithmetic("%", v, by)
	return err == nil && equal(r, rest), err
}

// hasCase reports whether s has a letter with case.
func hasCase(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) })
}
