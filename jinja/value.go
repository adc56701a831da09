package jinja

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Values are nil (None), bool, int64, float64, string, *sequence, *Dict, *namespace, *loop, *function
// and *undefined.

// An undefined value holds the error that using it returns.
type undefined struct{ problem string }

func (u *undefined) err() error { return errors.New(u.problem) }

// A kind of sequence.
type kind int

const (
	list kind = iota
	tuple
	ranges
	view      // of keys, values or items of a dict
	generator // a result of filters such as map: true, without length, read once
)

type sequence struct {
	kind  kind
	name  string // of views, ranges and generators, as Python prints them
	items []any

	bounds []any // of ranges: start, stop, step
}

func newList(items []any) *sequence { return &sequence{kind: list, items: items} }

func newTuple(items ...any) *sequence { return &sequence{kind: tuple, items: items} }

func newGenerator(items []any) *sequence {
	return &sequence{kind: generator, name: "<generator object>", items: items}
}

// A Dict is a mapping in the order of insertion.
type Dict struct {
	keys, values []any
	index        map[any]int
}

// NewDict returns a mapping of alternating keys and values. Keys are strings.
func NewDict(keysAndValues ...any) *Dict {
	d := &Dict{index: map[any]int{}}
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		d.setString(keysAndValues[i].(string), keysAndValues[i+1])
	}
	return d
}

func (d *Dict) setString(key string, value any) { _ = d.set(key, value) } // strings are hashable

// set sets a value. Keys that Python cannot hash are an error.
func (d *Dict) set(key, value any) error {
	h, err := hash(key)
	if err != nil {
		return err
	}
	if i, ok := d.index[h]; ok {
		d.values[i] = value
		return nil
	}
	d.index[h] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
	return nil
}

func (d *Dict) get(key any) (value any, ok bool, err error) {
	h, err := hash(key)
	if err != nil {
		return nil, false, err
	}
	if i, ok := d.index[h]; ok {
		return d.values[i], true, nil
	}
	return nil, false, nil
}

func (d *Dict) items() []any {
	pairs := make([]any, len(d.keys))
	for i, k := range d.keys {
		pairs[i] = newTuple(k, d.values[i])
	}
	return pairs
}

// hash returns a comparable value that is equal for keys that are equal in Python.
func hash(key any) (any, error) {
	type tupleKey string
	switch k := key.(type) {
	case bool, int64:
		return toInt(k), nil
	case float64:
		if f := math.Trunc(k); f == k && f >= -1<<63 && f < 1<<63 {
			return int64(f), nil
		}
		return k, nil
	case *sequence:
		if k.kind != tuple {
			break
		}
		var all strings.Builder
		for _, x := range k.items {
			h, err := hash(x)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&all, "%T %#v,", h, h)
		}
		return tupleKey(all.String()), nil
	case nil, string, *function, *undefined, *namespace, *loop:
		return k, nil
	}
	return nil, fmt.Errorf("unhashable type: %s", typeName(key))
}

// toInt returns a bool, int64 or integral float64 as an integer.
func toInt(v any) int64 {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

// number returns a bool, int64 or float64 as a float.
func number(v any) (f float64, ok bool) {
	switch v := v.(type) {
	case bool, int64:
		return float64(toInt(v)), true
	case float64:
		return v, true
	}
	return 0, false
}

// integer returns a bool or int64 as an integer.
func integer(v any) (i int64, ok bool) {
	switch v.(type) {
	case bool, int64:
		return toInt(v), true
	}
	return 0, false
}

// A namespace is what namespace() returns: its attributes can be set.
type namespace struct{ attributes *Dict }

// A function is a global, a method or a macro.
type function struct {
	name       string
	call       func(args []any, kwargs *Dict) (any, error)
	attributes map[string]any // of a macro
}

// typeName returns the name of the type of a value in Python.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *Dict:
		return "dict"
	case *sequence:
		return [...]string{"list", "tuple", "range", "view", "generator"}[v.kind]
	case *namespace:
		return "namespace"
	case *loop:
		return "loop"
	case *undefined:
		return "undefined"
	}
	return "function"
}

// truth returns the truth value of v.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool, int64, float64:
		f, _ := number(v)
		return f != 0
	case string:
		return v != ""
	case *sequence:
		return v.kind == generator || len(v.items) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// length returns the length of v.
func length(v any) (int, error) {
	switch v := v.(type) {
	case *undefined:
		return 0, nil
	case string:
		return utf8.RuneCountInString(v), nil
	case *sequence:
		if v.kind != generator {
			return len(v.items), nil
		}
	case *Dict:
		return len(v.keys), nil
	case *loop:
		return len(v.items), nil
	}
	return 0, fmt.Errorf("a value of type %s has no length", typeName(v))
}

// iterate returns the elements of v. A generator has none afterwards.
func iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, nil
	case string:
		items := make([]any, 0, len(v))
		for _, r := range v {
			items = append(items, string(r))
		}
		return items, nil
	case *sequence:
		items := v.items
		if v.kind == generator {
			v.items = nil
		}
		return items, nil
	case *Dict:
		return v.keys, nil
	}
	return nil, fmt.Errorf("a value of type %s cannot be iterated", typeName(v))
}

// equal reports whether a == b.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && !math.IsNaN(x) && !math.IsNaN(y) && compareNumbers(a, b) == 0
	}
	switch a := a.(type) {
	case *sequence:
		b, ok := b.(*sequence)
		if ok && a.kind == view && b.kind == view {
			return a == b || equalViews(a, b)
		}
		if !ok || a.kind != b.kind || len(a.items) != len(b.items) || a.kind == generator {
			return ok && a == b
		}
		for i := range a.items {
			if !equal(a.items[i], b.items[i]) {
				return false
			}
		}
		return true
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for i, k := range a.keys {
			if v, ok, err := b.get(k); !ok || err != nil || !equal(a.values[i], v) {
				return false
			}
		}
		return true
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	}
	return a == b
}

// equalViews reports whether views of keys or items have the same elements. Views of values are never
// equal.
func equalViews(a, b *sequence) bool {
	if a.name == "dict_values" || b.name == "dict_values" || len(a.items) != len(b.items) {
		return false
	}
	for _, x := range a.items {
		if ok, err := contains(b, x); !ok || err != nil {
			return false
		}
	}
	return true
}

// compareNumbers orders numbers that are not NaN, without rounding integers to floats.
func compareNumbers(a, b any) int {
	i, isInt := integer(a)
	j, isInt2 := integer(b)
	x, _ := number(a)
	y, _ := number(b)
	switch {
	case isInt && isInt2:
		return cmp.Compare(i, j)
	case isInt:
		return compareToFloat(i, y)
	case isInt2:
		return -compareToFloat(j, x)
	}
	return cmp.Compare(x, y)
}

func compareToFloat(i int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	return cmp.Or(cmp.Compare(i, int64(f)), cmp.Compare(math.Trunc(f), f))
}

// compare orders a and b.
func compare(a, b any) (int, error) {
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, u.err()
		}
	}
	x, ok := number(a)
	y, ok2 := number(b)
	if ok && ok2 {
		if math.IsNaN(x) || math.IsNaN(y) {
			return 0, errors.New("NaN has no order")
		}
		return compareNumbers(a, b), nil
	}
	if s, ok := a.(string); ok {
		if t, ok := b.(string); ok {
			return strings.Compare(s, t), nil
		}
	}
	s, ok := a.(*sequence)
	t, ok2 := b.(*sequence)
	if !ok || !ok2 || s.kind != t.kind || s.kind > tuple {
		return 0, fmt.Errorf("values of types %s and %s have no order", typeName(a), typeName(b))
	}
	for i := range min(len(s.items), len(t.items)) {
		if !equal(s.items[i], t.items[i]) {
			return compare(s.items[i], t.items[i])
		}
	}
	return cmp.Compare(len(s.items), len(t.items)), nil
}

// contains reports whether item is in v.
func contains(v, item any) (bool, error) {
	switch v := v.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			return false, fmt.Errorf("a string contains strings, not a value of type %s", typeName(item))
		}
		return strings.Contains(v, s), nil
	case *Dict:
		_, ok, err := v.get(item)
		return ok, err
	}
	items, err := iterate(v)
	for _, x := range items {
		if equal(x, item) {
			return true, nil
		}
	}
	return false, err
}
