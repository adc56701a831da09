package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A stringMethod is a method of strings.
type stringMethod struct {
	parameters string
	call       func(s string, g given) (any, error)
}

// simple is a method without arguments.
func simple[T any](f func(string) T) stringMethod {
	return stringMethod{"", func(s string, _ given) (any, error) { return f(s), nil }}
}

// every is a method that reports whether a text is not empty and all characters have a property.
func every(has func(rune) bool) stringMethod {
	return simple(func(s string) bool { return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !has(r) }) })
}

var stringMethods map[string]stringMethod

// init sets the table, because methods such as join get elements, which may be methods.
func init() {
	stringMethods = map[string]stringMethod{
		"upper": simple(upper), "lower": simple(lower), "casefold": simple(casefolded),
		"capitalize": simple(capitalized), "title": simple(titled), "swapcase": simple(swapCase),
		"isdigit": every(isDigit), "isdecimal": every(unicode.IsDigit), "isnumeric": every(isNumeric),
		"isalpha": every(unicode.IsLetter), "isalnum": every(isAlphanumeric), "isspace": every(isSpace),
		"isupper": simple(func(s string) bool { return hasOnly(s, isUpper) }),
		"islower": simple(func(s string) bool { return hasOnly(s, isLower) }),
		"isascii": simple(func(s string) bool {
			return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
		}),

		"strip":  {"[chars]", func(s string, g given) (any, error) { return stripped(s, g, true, true) }},
		"lstrip": {"[chars]", func(s string, g given) (any, error) { return stripped(s, g, true, false) }},
		"rstrip": {"[chars]", func(s string, g given) (any, error) { return stripped(s, g, false, true) }},

		"removeprefix": {"prefix", func(s string, g given) (any, error) { return trimmed(s, g, strings.TrimPrefix) }},
		"removesuffix": {"suffix", func(s string, g given) (any, error) { return trimmed(s, g, strings.TrimSuffix) }},
		"replace": {"old new [count]", func(s string, g given) (any, error) {
			for i := range 2 {
				if _, err := g.text(i, ""); err != nil {
					return nil, err
				}
			}
			if _, err := g.integer(2, -1); err != nil {
				return nil, err
			}
			return replaced(s, g)
		}},

		"split":  {"[sep maxsplit]", func(s string, g given) (any, error) { return split(s, g, false) }},
		"rsplit": {"[sep maxsplit]", func(s string, g given) (any, error) { return split(s, g, true) }},
		"splitlines": {"[keepends]", func(s string, g given) (any, error) {
			if g.is(0) {
				return nil, errors.New("splitlines does not support keepends")
			}
			return newList(anys(splitLines(s))), nil
		}},
		"partition":  {"sep", func(s string, g given) (any, error) { return partition(s, g, false) }},
		"rpartition": {"sep", func(s string, g given) (any, error) { return partition(s, g, true) }},
		"join":       {"iterable", joinStrings},

		"startswith": {"prefix [start end]", func(s string, g given) (any, error) { return affixed(s, g, strings.HasPrefix) }},
		"endswith":   {"suffix [start end]", func(s string, g given) (any, error) { return affixed(s, g, strings.HasSuffix) }},
		"find":       {"sub [start end]", func(s string, g given) (any, error) { return found(s, g, strings.Index) }},
		"rfind":      {"sub [start end]", func(s string, g given) (any, error) { return found(s, g, strings.LastIndex) }},
		"index":      {"sub [start end]", func(s string, g given) (any, error) { return mustFind(found(s, g, strings.Index)) }},
		"rindex":     {"sub [start end]", func(s string, g given) (any, error) { return mustFind(found(s, g, strings.LastIndex)) }},
		"count":      {"sub [start end]", counted},

		"ljust":  {"width [fillchar]", func(s string, g given) (any, error) { return padded(s, g, 0, 0) }},
		"rjust":  {"width [fillchar]", func(s string, g given) (any, error) { return padded(s, g, 0, 1) }},
		"center": {"width [fillchar]", func(s string, g given) (any, error) { return padded(s, g, 0, 0.5) }},
		"zfill":  {"width", zeroFilled},
	}
}

// trimmed is removeprefix or removesuffix.
func trimmed(s string, g given, trim func(s, affix string) string) (any, error) {
	affix, err := g.text(0, "")
	return trim(s, affix), err
}

// joinStrings is join. The elements must be strings, unlike those of the filter join.
func joinStrings(s string, g given) (any, error) {
	all, err := iterate(g.or(0, nil))
	for _, x := range all {
		if _, ok := x.(string); !ok {
			return nil, fmt.Errorf("join wants strings, not a value of type %s", typeName(x))
		}
	}
	if err != nil {
		return nil, err
	}
	return join(newList(all), given{s})
}

// counted is count.
func counted(s string, g given) (any, error) {
	part, before, err := window(s, g)
	if err != nil {
		return nil, err
	}
	sub, err := g.text(0, "")
	if before < 0 {
		return int64(0), err
	}
	return int64(strings.Count(part, sub)), err
}

// zeroFilled is zfill.
func zeroFilled(s string, g given) (any, error) {
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	width, err := g.integer(0, 0)
	if err != nil {
		return nil, err
	}
	text, err := padded(s, given{width - int64(len(sign)), "0"}, 0, 1)
	return sign + str(text), err
}

// changing are the methods that change a list or a mapping, which the sandbox forbids.
var changing = map[string]bool{
	"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "popitem": true, "remove": true, "reverse": true,
	"setdefault": true, "sort": true, "update": true,
}

// method returns a method of v: nil if there is none.
func method(v any, name string) any {
	switch v := v.(type) {
	case string:
		return methodOfString(v, name)
	case *Dict:
		if changing[name] {
			return &undefined{fmt.Sprintf("templates cannot change values, so %s of a mapping is forbidden", name)}
		}
		return methodOfDict(v, name)
	case *sequence:
		if changing[name] && v.kind == list {
			return &undefined{fmt.Sprintf("templates cannot change values, so %s of a list is forbidden", name)}
		}
		return methodOfSequence(v, name)
	case bool, int64, float64:
		return unsupportedMethod(v, name)
	}
	return nil
}

// unsupportedMethods are those of strings, mappings and numbers that are not implemented: calling one is
// an error.
var unsupportedMethods = map[string]string{
	"str":   "encode expandtabs format_map isidentifier isprintable istitle maketrans translate",
	"dict":  "fromkeys",
	"int":   "as_integer_ratio bit_count bit_length conjugate from_bytes to_bytes",
	"bool":  "as_integer_ratio bit_count bit_length conjugate from_bytes to_bytes",
	"float": "as_integer_ratio conjugate fromhex hex is_integer",
}

func unsupportedMethod(v any, name string) any {
	if !slices.Contains(strings.Fields(unsupportedMethods[typeName(v)]), name) {
		return nil
	}
	return &function{name: name, call: func([]any, *Dict) (any, error) {
		return nil, fmt.Errorf("unsupported method %s of %s", name, typeName(v))
	}}
}

// bindMethod returns a method whose arguments have the given parameters, with names or without.
func bindMethod(name, parameters string, named bool, f func(g given) (any, error)) *function {
	return &function{name: name, call: func(args []any, kwargs *Dict) (any, error) {
		if !named && len(kwargs.keys) > 0 {
			return nil, fmt.Errorf("%s: arguments have no names", name)
		}
		g, err := bind(parameters, args, kwargs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return f(g)
	}}
}

func methodOfString(s, name string) any {
	if name == "format" {
		return &function{name: name, call: func(args []any, kwargs *Dict) (any, error) { return braceFormat(s, args, kwargs) }}
	}
	m, ok := stringMethods[name]
	if !ok {
		return unsupportedMethod(s, name)
	}
	return bindMethod(name, m.parameters, strings.Contains(name, "split"), func(g given) (any, error) { return m.call(s, g) })
}

func methodOfDict(d *Dict, name string) any {
	of := func(items func() []any) any {
		return bindMethod(name, "", false, func(given) (any, error) {
			return &sequence{kind: view, name: "dict_" + name, items: items()}, nil
		})
	}
	switch name {
	case "keys":
		return of(func() []any { return d.keys })
	case "values":
		return of(func() []any { return d.values })
	case "items":
		return of(d.items)
	case "get":
		return bindMethod(name, "key [default]", false, func(g given) (any, error) {
			v, ok, err := d.get(g[0])
			if !ok {
				v = g.or(1, nil)
			}
			return v, err
		})
	case "copy":
		return bindMethod(name, "", false, func(given) (any, error) { return dictOf([]any{d}, NewDict()) })
	}
	return unsupportedMethod(d, name)
}

func methodOfSequence(s *sequence, name string) any {
	switch {
	case s.kind == tuple && s.name == "group" && (name == "grouper" || name == "list"): // of groupby
		return s.items[slices.Index([]string{"grouper", "list"}, name)]
	case s.kind == ranges && slices.Contains(rangeAttributes, name):
		return s.bounds[slices.Index(rangeAttributes, name)]
	case s.kind == list && name == "copy":
		return bindMethod(name, "", false, func(given) (any, error) { return newList(slices.Clone(s.items)), nil })
	case s.kind <= ranges && name == "count":
		return bindMethod(name, "value", false, func(g given) (any, error) {
			n := int64(0)
			for _, x := range s.items {
				if equal(x, g[0]) {
					n++
				}
			}
			return n, nil
		})
	case s.kind <= ranges && name == "index":
		return bindMethod(name, "value [start stop]", false, func(g given) (any, error) { return indexOf(s, g) })
	}
	return nil
}

// indexOf is index.
func indexOf(s *sequence, g given) (any, error) {
	if g.has(1) {
		return nil, errors.New("index does not support bounds")
	}
	i := slices.IndexFunc(s.items, func(x any) bool { return equal(x, g[0]) })
	if i < 0 {
		return nil, fmt.Errorf("%s is not in the list", repr(g[0]))
	}
	return int64(i), nil
}

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, s := range texts {
		all[i] = s
	}
	return all
}

// stripped removes white space, or characters of argument 0, at the ends.
func stripped(s string, g given, left, right bool) (any, error) {
	cut := isSpace
	if g.or(0, nil) != nil {
		chars, err := g.text(0, "")
		if err != nil {
			return nil, err
		}
		cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

func replaced(s string, g given) (any, error) {
	count := int64(-1)
	if g.or(2, nil) != nil {
		var err error
		if count, err = g.integer(2, -1); err != nil {
			return nil, err
		}
	}
	return strings.Replace(s, str(g[0]), str(g[1]), int(count)), nil
}

// split divides s at a separator, or at white space, at most maxsplit times: from the right, if last.
func split(s string, g given, last bool) (any, error) {
	most, err := g.integer(1, -1)
	if err != nil {
		return nil, err
	}
	if g.or(0, nil) == nil {
		return newList(anys(splitSpace(s, most, last))), nil
	}
	separator, err := g.text(0, "")
	if err != nil || separator == "" {
		return nil, orError(err, "the separator is empty")
	}
	parts := strings.Split(s, separator)
	if n := len(parts) - 1; most >= 0 && most < int64(n) {
		m := int(most)
		if last {
			parts = append([]string{strings.Join(parts[:n-m+1], separator)}, parts[n-m+1:]...)
		} else {
			parts = append(parts[:m:m], strings.Join(parts[m:], separator))
		}
	}
	return newList(anys(parts)), nil
}

// splitSpace divides s at white space, at most a number of times if that is not negative.
func splitSpace(s string, most int64, last bool) (parts []string) {
	trim := strings.TrimLeftFunc
	if last {
		trim = strings.TrimRightFunc
	}
	for s = trim(s, isSpace); s != ""; most-- {
		i := -1
		switch {
		case most == 0:
		case last:
			i = strings.LastIndexFunc(s, isSpace)
		default:
			i = strings.IndexFunc(s, isSpace)
		}
		switch {
		case i < 0:
			parts, s = append(parts, s), ""
		case last:
			parts, s = append(parts, strings.TrimLeftFunc(s[i:], isSpace)), strings.TrimRightFunc(s[:i], isSpace)
		default:
			parts, s = append(parts, s[:i]), strings.TrimLeftFunc(s[i:], isSpace)
		}
	}
	if last {
		slices.Reverse(parts)
	}
	return parts
}

// splitLines divides s into lines. An end of the last line adds none.
func splitLines(s string) []string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n", "\u0085", "\n",
		"\u2028", "\n", "\u2029", "\n").Replace(s)
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func partition(s string, g given, last bool) (any, error) {
	separator, err := g.text(0, "")
	if err != nil || separator == "" {
		return nil, orError(err, "the separator is empty")
	}
	i := strings.Index(s, separator)
	if last {
		i = strings.LastIndex(s, separator)
	}
	switch {
	case i >= 0:
		return newTuple(s[:i], separator, s[i+len(separator):]), nil
	case last:
		return newTuple("", "", s), nil
	}
	return newTuple(s, "", ""), nil
}

// window returns the part of s between arguments 1 and 2, and the number of characters before it: -1 if
// the bounds are not in order, so that not even an empty text is between them.
func window(s string, g given) (part string, before int64, err error) {
	n, _ := length(s)
	bounds := [2]int64{0, int64(n)}
	for i := range bounds {
		if g.or(i+1, nil) == nil {
			continue
		}
		at, err := g.integer(i+1, 0)
		if err != nil {
			return "", 0, err
		}
		if at < 0 {
			at = max(at+int64(n), 0)
		}
		bounds[i] = at
	}
	start, stop := bounds[0], min(bounds[1], int64(n))
	if start > stop {
		return "", -1, nil
	}
	return string([]rune(s)[start:stop]), start, nil
}

// affixed reports whether s has a prefix or suffix, or one of several.
func affixed(s string, g given, has func(s, affix string) bool) (any, error) {
	s, before, err := window(s, g)
	if err != nil {
		return nil, err
	}
	all := []any{g.or(0, nil)}
	if t, ok := all[0].(*sequence); ok && t.kind == tuple {
		all = t.items
	}
	for _, x := range all {
		affix, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("want a string or a tuple of strings, not a value of type %s", typeName(x))
		}
		if before >= 0 && has(s, affix) {
			return true, nil
		}
	}
	return false, nil
}

// found returns the position of argument 0 in s, -1 if it is not there.
func found(s string, g given, index func(s, sub string) int) (any, error) {
	part, before, err := window(s, g)
	if err != nil {
		return nil, err
	}
	sub, err := g.text(0, "")
	i := index(part, sub)
	if i < 0 || before < 0 || err != nil {
		return int64(-1), err
	}
	n, err := length(part[:i])
	return before + int64(n), err
}

func mustFind(at any, err error) (any, error) {
	if err == nil && at == int64(-1) {
		return nil, errors.New("the text is not there")
	}
	return at, err
}

// padded adds characters up to a width: the given share of them on the left.
func padded(s string, g given, width int64, left float64) (any, error) {
	width, err := g.integer(0, width)
	if err != nil {
		return nil, err
	}
	fill, err := g.text(1, " ")
	if err != nil {
		return nil, err
	}
	if n, _ := length(fill); n != 1 {
		return nil, fmt.Errorf("want one character to fill with, not %d", n)
	}
	n, _ := length(s)
	pad := max(width-int64(n), 0)
	before := int64(float64(pad) * left)
	if left == 0.5 && pad%2 == 1 && width%2 == 1 { // as Python rounds
		before++
	}
	return strings.Repeat(fill, int(before)) + s + strings.Repeat(fill, int(pad-before)), nil
}
