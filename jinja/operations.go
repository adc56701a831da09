package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// arithmetic computes a op b.
func arithmetic(op string, a, b any) (any, error) {
	if op == "~" {
		return str(a) + str(b), nil
	}
	if s, ok := a.(string); ok && op == "%" {
		return percentFormat(s, b)
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.err()
		}
	}
	if op == "+" {
		if v, ok := joined(a, b); ok {
			return v, nil
		}
	}
	if op == "*" {
		if n, ok := integer(b); ok {
			if v, ok := repeated(a, n); ok {
				return v, nil
			}
		}
		if n, ok := integer(a); ok {
			if v, ok := repeated(b, n); ok {
				return v, nil
			}
		}
	}
	x, ok := number(a)
	y, ok2 := number(b)
	if !ok || !ok2 {
		return nil, fmt.Errorf("%s has no meaning for values of types %s and %s", op, typeName(a), typeName(b))
	}
	i, isInt := integer(a)
	j, isInt2 := integer(b)
	if isInt && isInt2 {
		return integers(op, i, j)
	}
	return floats(op, x, y)
}

// joined returns a + b of strings, lists or tuples.
func joined(a, b any) (any, bool) {
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		return s + t, ok
	}
	s, ok := a.(*sequence)
	t, ok2 := b.(*sequence)
	if !ok || !ok2 || s.kind != t.kind || s.kind > tuple {
		return nil, false
	}
	return &sequence{kind: s.kind, items: slices.Concat(s.items, t.items)}, true
}

// repeated returns n copies of a string, a list or a tuple.
func repeated(v any, n int64) (any, bool) {
	n = max(n, 0)
	switch v := v.(type) {
	case string:
		return strings.Repeat(v, int(n)), true
	case *sequence:
		if v.kind <= tuple {
			return &sequence{kind: v.kind, items: slices.Repeat(v.items, int(n))}, true
		}
	}
	return nil, false
}

var (
	errZero  = errors.New("division by zero")
	errLarge = errors.New("an integer is not below 2^63")
)

func integers(op string, a, b int64) (any, error) {
	switch op {
	case "+":
		if sum := a + b; (sum > a) == (b > 0) {
			return sum, nil
		}
		return nil, errLarge
	case "-":
		if difference := a - b; (difference < a) == (b > 0) {
			return difference, nil
		}
		return nil, errLarge
	case "*":
		return product(a, b)
	case "**":
		if b < 0 {
			return floats(op, float64(a), float64(b))
		}
		result := any(int64(1))
		var err error
		for ; b > 0 && err == nil; b-- {
			if a == 0 || a == 1 {
				return product(a, 1)
			}
			result, err = product(result.(int64), a)
		}
		return result, err
	case "/":
		if b == 0 {
			return nil, errZero
		}
		quotient, _ := new(big.Rat).SetFrac64(a, b).Float64() // rounds once
		return quotient, nil
	}
	if b == 0 {
		return nil, errZero
	}
	if a == math.MinInt64 && b == -1 {
		if op == "%" {
			return int64(0), nil
		}
		return nil, errLarge
	}
	quotient, rest := a/b, a%b
	if rest != 0 && (rest < 0) != (b < 0) { // Python rounds down
		quotient, rest = quotient-1, rest+b
	}
	if op == "//" {
		return quotient, nil
	}
	return rest, nil
}

func product(a, b int64) (any, error) {
	high, low := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	if high != 0 || low > math.MaxInt64 || a == math.MinInt64 || b == math.MinInt64 {
		return nil, errLarge
	}
	return a * b, nil
}

func floats(op string, a, b float64) (any, error) {
	if b == 0 && strings.Contains("/ // %", op) || op == "**" && a == 0 && b < 0 {
		return nil, errZero
	}
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		return a / b, nil
	case "**":
		return power(a, b)
	}
	rest := math.Mod(a, b)
	quotient := (a - rest) / b
	if rest != 0 && (rest < 0) != (b < 0) {
		rest, quotient = rest+b, quotient-1
	} else if rest == 0 {
		rest = math.Copysign(0, b)
	}
	switch floor := math.Floor(quotient); {
	case op == "%":
		return rest, nil
	case quotient == 0:
		return math.Copysign(0, a/b), nil
	case quotient-floor > 0.5:
		return floor + 1, nil
	default:
		return floor, nil
	}
}

func power(a, b float64) (any, error) {
	result := math.Pow(a, b)
	switch {
	case math.IsNaN(result) && !math.IsNaN(a) && !math.IsNaN(b):
		return nil, errors.New("a power of a negative number is complex")
	case math.IsInf(result, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0):
		return nil, errors.New("a power is too large")
	}
	return result, nil
}

// negated returns -v.
func negated(v any) (any, error) {
	if f, ok := v.(float64); ok {
		return -f, nil
	}
	return arithmetic("-", int64(0), v)
}

// positive returns +v.
func positive(v any) (any, error) { return arithmetic("+", int64(0), v) }

// comparisons are the operators that compare two values.
var comparisons = map[string]func(a, b any) (bool, error){
	"==": func(a, b any) (bool, error) { return equal(a, b), nil },
	"!=": func(a, b any) (bool, error) { return !equal(a, b), nil },
	"<":  func(a, b any) (bool, error) { c, err := compare(a, b); return c < 0, err },
	"<=": func(a, b any) (bool, error) { c, err := compare(a, b); return c <= 0, err },
	">":  func(a, b any) (bool, error) { c, err := compare(a, b); return c > 0, err },
	">=": func(a, b any) (bool, error) { c, err := compare(a, b); return c >= 0, err },
}

// attribute returns v.name: an attribute, else an element.
func attribute(v any, name string) (any, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.err()
	case bool, int64, float64:
		if slices.Contains([]string{"real", "imag", "numerator", "denominator"}, name) {
			return nil, fmt.Errorf("unsupported attribute %s of %s", name, typeName(v))
		}
	case *namespace:
		if value, ok, _ := v.attributes.get(name); ok {
			return value, nil
		}
	case *function:
		if value, ok := v.attributes[name]; ok {
			return value, nil
		}
	case *loop:
		return v.attribute(name), nil
	}
	if m := method(v, name); m != nil {
		return m, nil
	}
	if d, ok := v.(*Dict); ok {
		if value, ok, _ := d.get(name); ok {
			return value, nil
		}
	}
	return missing(v, name), nil
}

// item returns v[key]: an element, else an attribute. Missing ones are undefined.
func item(v, key any) (any, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.err()
	case *Dict:
		if value, ok, _ := v.get(key); ok {
			return value, nil
		}
	case *sequence:
		if i, ok := integer(key); ok && v.kind < view {
			if i < 0 {
				i += int64(len(v.items))
			}
			if i >= 0 && i < int64(len(v.items)) {
				return v.items[i], nil
			}
		}
	case string:
		if i, ok := integer(key); ok {
			runes := []rune(v)
			if i < 0 {
				i += int64(len(runes))
			}
			if i >= 0 && i < int64(len(runes)) {
				return string(runes[i]), nil
			}
		}
	case *namespace, *function, *loop:
		if name, ok := key.(string); ok {
			return attribute(v, name)
		}
	}
	if name, ok := key.(string); ok {
		if m := method(v, name); m != nil {
			return m, nil
		}
	}
	return missing(v, key), nil
}

func missing(v, key any) *undefined {
	if v == nil {
		return &undefined{fmt.Sprintf("none has no %s", repr(key))}
	}
	return &undefined{fmt.Sprintf("a value of type %s has no %s", typeName(v), repr(key))}
}

// sliced returns v[start:stop:step].
func sliced(v any, at [3]any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	items, err := iterate(v)
	s, isSequence := v.(*sequence)
	_, isString := v.(string)
	if err != nil || !isString && !(isSequence && s.kind < view) {
		return &undefined{fmt.Sprintf("a value of type %s has no slices", typeName(v))}, nil
	}
	step, n := int64(1), int64(len(items))
	var bounds [2]int64
	for i, b := range at {
		index, ok := integer(b)
		if b != nil && !ok {
			return &undefined{"bounds of a slice are integers"}, nil
		}
		if i == 2 {
			if b != nil {
				step = index
			}
			continue
		}
		bounds[i] = index
	}
	if step == 0 {
		return nil, errors.New("the step of a slice is zero")
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	for i, whole := range []int64{low, high} {
		if step < 0 {
			whole = []int64{high, low}[i]
		}
		switch b := bounds[i]; {
		case at[i] == nil:
			bounds[i] = whole
		case b < 0:
			bounds[i] = max(b+n, low)
		default:
			bounds[i] = min(b, high)
		}
	}
	if isSequence && s.kind == ranges {
		start, by := toInt(s.bounds[0]), toInt(s.bounds[2])
		return newRange(start+bounds[0]*by, start+bounds[1]*by, by*step)
	}
	var kept []any
	for i := bounds[0]; step > 0 && i < bounds[1] || step < 0 && i > bounds[1]; i += step {
		kept = append(kept, items[i])
		if step > 0 && i > n-step || step < 0 && i < -step-1 {
			break // i + step might overflow
		}
	}
	if isString {
		return concatenated(kept), nil
	}
	return &sequence{kind: s.kind, items: kept}, nil
}

// concatenated returns the text of strings.
func concatenated(items []any) string {
	var out strings.Builder
	for _, x := range items {
		out.WriteString(str(x))
	}
	return out.String()
}
