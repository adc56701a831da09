package jinja

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A filter computes a value from another one and arguments.
type filter func(v any, args []any, kwargs *Dict) (any, error)

// bound returns a filter whose arguments have the given parameters.
func bound(parameters string, apply func(v any, g given) (any, error)) filter {
	return func(v any, args []any, kwargs *Dict) (any, error) {
		g, err := bind(parameters, args, kwargs)
		if err != nil {
			return nil, err
		}
		return apply(v, g)
	}
}

// ofText returns a filter of a text, without arguments.
func ofText(f func(string) string) filter {
	return bound("", func(v any, _ given) (any, error) { return f(str(v)), nil })
}

var filters map[string]filter

// init sets the table, because filters such as map read it.
func init() {
	filters = map[string]filter{
		"abs": bound("", absolute), "int": bound("[default base]", toInteger), "float": bound("[default]", toFloat),
		"round": bound("[precision method]", round), "format": formatted,
		"string": ofText(func(s string) string { return s }), "safe": ofText(func(s string) string { return s }),
		"escape": ofText(entities.Replace), "e": ofText(entities.Replace), "urlencode": bound("", urlEncode),
		"upper": ofText(upper), "lower": ofText(lower), "capitalize": ofText(capitalized), "title": ofText(titleWords),
		"trim":    bound("[chars]", func(v any, g given) (any, error) { return stripped(str(v), g, true, true) }),
		"replace": bound("old new [count]", func(v any, g given) (any, error) { return replaced(str(v), g) }),
		"indent":  bound("[width first blank]", indent),
		"center":  bound("[width]", func(v any, g given) (any, error) { return padded(str(v), g, 80, 0.5) }),

		"truncate": bound("[length killwords end leeway]", truncate), "wordcount": bound("", wordCount),
		"default": bound("[default_value boolean]", defaulted), "d": bound("[default_value boolean]", defaulted),
		"length": bound("", lengthOf), "count": bound("", lengthOf),
		"tojson": bound("[ensure_ascii indent separators sort_keys]", toJSON), "attr": bound("name", attributeNamed),

		"first": bound("", first), "last": bound("", last), "list": bound("", toList), "reverse": bound("", reverse),
		"items": bound("", items), "join": bound("[d attribute]", join), "sum": bound("[attribute start]", sum),
		"batch": bound("linecount [fill_with]", batch), "slice": bound("slices [fill_with]", sliceLists),
		"sort": bound("[reverse case_sensitive attribute]", sorted), "dictsort": bound("[case_sensitive by reverse]", dictSort),
		"min":    bound("[case_sensitive attribute]", func(v any, g given) (any, error) { return extreme(v, g, -1) }),
		"max":    bound("[case_sensitive attribute]", func(v any, g given) (any, error) { return extreme(v, g, 1) }),
		"unique": bound("[case_sensitive attribute]", unique), "groupby": bound("attribute [default case_sensitive]", groupBy),

		"map": mapped, "select": selecting(true, false), "reject": selecting(false, false),
		"selectattr": selecting(true, true), "rejectattr": selecting(false, true),
	}
}

// unsupportedFilters are those of Jinja2 that are not in the table.
const unsupportedFilters = "filesizeformat forceescape pprint random striptags urlize wordwrap xmlattr"

func applyFilter(name string, v any, args []any, kwargs *Dict) (any, error) {
	f, ok := filters[name]
	if !ok {
		return nil, fmt.Errorf("unknown filter %s", name)
	}
	result, err := f(v, args, kwargs)
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", name, err)
	}
	return result, nil
}

// formatted is the filter format, whose arguments are the values of a format.
func formatted(v any, args []any, kwargs *Dict) (any, error) {
	switch {
	case len(kwargs.keys) == 0:
		return percentFormat(str(v), newTuple(args...))
	case len(args) > 0:
		return nil, errors.New("want positional arguments or named ones, not both")
	}
	return percentFormat(str(v), kwargs)
}

// attributeNamed is the filter attr, which ignores the elements of a mapping.
func attributeNamed(v any, g given) (any, error) {
	word, err := g.text(0, "")
	if err != nil {
		return nil, err
	}
	if _, ok := v.(*Dict); ok && method(v, word) == nil {
		return missing(v, word), nil
	}
	return attribute(v, word)
}

func defaulted(v any, g given) (any, error) {
	if _, ok := v.(*undefined); ok || g.is(1) && !truth(v) {
		return g.or(0, ""), nil
	}
	return v, nil
}

func lengthOf(v any, _ given) (any, error) {
	n, err := length(v)
	return int64(n), err
}

var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// urlEncode quotes a text, or makes a query of a mapping or of pairs.
func urlEncode(v any, _ given) (any, error) {
	switch v.(type) {
	case *Dict, *sequence, *undefined:
	default:
		return strings.ReplaceAll(urlQuoted(str(v)), "%2F", "/"), nil
	}
	pairs, err := pairsOf(v)
	texts := make([]string, len(pairs))
	for i, pair := range pairs {
		texts[i] = strings.ReplaceAll(urlQuoted(str(pair[0]))+"="+urlQuoted(str(pair[1])), "%20", "+")
	}
	return strings.Join(texts, "&"), err
}

func urlQuoted(s string) string {
	return strings.NewReplacer("+", "%20", "%7E", "~").Replace(url.QueryEscape(s))
}

// words matches what titleWords capitalizes.
var words = regexp.MustCompile(`[^-\s\v\x{1c}-\x{1f}\x{85}\p{Z}({\[<]+`)

// titleWords is the filter title: words begin after white space, hyphens and brackets.
func titleWords(s string) string {
	return words.ReplaceAllStringFunc(s, func(word string) string {
		_, n := utf8.DecodeRuneInString(word)
		return upper(word[:n]) + lower(word[n:])
	})
}

func indent(v any, g given) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("want a string, not a value of type %s", typeName(v))
	}
	by, ok := g.or(0, int64(4)).(string)
	if !ok {
		width, err := g.integer(0, 4)
		if err != nil {
			return nil, err
		}
		by = strings.Repeat(" ", int(max(width, 0)))
	}
	lines := splitLines(s + "\n")
	for i, line := range lines {
		if i > 0 && (line != "" || g.is(2)) {
			lines[i] = by + line
		}
	}
	s = strings.Join(lines, "\n")
	if g.is(1) {
		s = by + s
	}
	return s, nil
}

func truncate(v any, g given) (any, error) {
	most, err := g.integer(0, 255)
	if err != nil {
		return nil, err
	}
	ending, err := g.text(2, "...")
	if err != nil {
		return nil, err
	}
	leeway, err := g.integer(3, 5)
	if err != nil {
		return nil, err
	}
	runes, room := []rune(str(v)), most-int64(len([]rune(ending)))
	switch {
	case int64(len(runes)) <= most+leeway:
		return str(v), nil
	case room < 0:
		return nil, fmt.Errorf("length is %d, want at least that of %s", most, repr(ending))
	}
	kept := string(runes[:room])
	if i := strings.LastIndexByte(kept, ' '); i >= 0 && !g.is(1) {
		kept = kept[:i]
	}
	return kept + ending, nil
}

func wordCount(v any, _ given) (any, error) {
	return int64(len(strings.FieldsFunc(str(v), func(r rune) bool { return r != '_' && !isAlphanumeric(r) }))), nil
}
