package jinja

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// A filter computes a value from another one.
type filter struct {
	parameters string
	apply      func(v any, g given) (any, error)
}

var filters map[string]filter

// init sets the table, because filters such as map read it.
func init() {
	filters = map[string]filter{
		"abs": {"", absolute}, "int": {"default base", toInteger}, "float": {"default", toFloat}, "round": {"precision method", round},
		"string": {"", func(v any, _ given) (any, error) { return str(v), nil }},
		"safe":   {"", func(v any, _ given) (any, error) { return str(v), nil }},
		"escape": {"", escape}, "e": {"", escape}, "urlencode": {"", urlEncode},
		"upper":      {"", func(v any, _ given) (any, error) { return strings.ToUpper(str(v)), nil }},
		"lower":      {"", func(v any, _ given) (any, error) { return strings.ToLower(str(v)), nil }},
		"capitalize": {"", func(v any, _ given) (any, error) { return capitalized(str(v)), nil }},
		"title":      {"", titled},
		"trim": {"chars", func(v any, g given) (any, error) {
			return stripped(str(v), g, true, true)
		}},
		"replace": {"old new count", func(v any, g given) (any, error) { return replaced(str(v), g) }},
		"indent":  {"width first blank", indent}, "center": {"width", func(v any, g given) (any, error) { return padded(str(v), g, 80, 0.5) }},
		"truncate": {"length killwords end leeway", truncate}, "wordcount": {"", wordCount},
		"format":  {"", nil}, // its arguments have any number
		"default": {"default_value boolean", defaulted}, "d": {"default_value boolean", defaulted},
		"length": {"", lengthOf}, "count": {"", lengthOf},
		"tojson": {"ensure_ascii indent separators sort_keys", toJSON},
		"attr": {"name", func(v any, g given) (any, error) {
			word, err := g.text(0, "")
			if err != nil {
				return nil, err
			}
			if _, ok := v.(*Dict); ok && method(v, word) == nil {
				return missing(v, word), nil
			}
			return attribute(v, word)
		}},
		"first": {"", first}, "last": {"", last}, "list": {"", toList}, "reverse": {"", reverse},
		"items": {"", items}, "join": {"d attribute", join}, "sum": {"attribute start", sum},
		"batch": {"linecount fill_with", batch}, "slice": {"slices fill_with", sliceLists},
		"sort": {"reverse case_sensitive attribute", sorted}, "dictsort": {"case_sensitive by reverse", dictSort},
		"min":    {"case_sensitive attribute", func(v any, g given) (any, error) { return extreme(v, g, -1) }},
		"max":    {"case_sensitive attribute", func(v any, g given) (any, error) { return extreme(v, g, 1) }},
		"unique": {"case_sensitive attribute", unique}, "groupby": {"attribute default case_sensitive", groupBy},
	}
}

// applyFilter applies a filter. Those that take the name of another one have any number of arguments.
func applyFilter(name string, v any, args []any, kwargs *Dict) (any, error) {
	var result any
	var err error
	switch name {
	case "format":
		var values any = newTuple(args...)
		if len(kwargs.keys) > 0 {
			values = kwargs
		}
		result, err = percentFormat(str(v), values)
	case "map":
		result, err = mapped(v, args, kwargs)
	case "select", "reject", "selectattr", "rejectattr":
		result, err = selected(v, args, kwargs, strings.HasPrefix(name, "select"), strings.HasSuffix(name, "attr"))
	default:
		f, ok := filters[name]
		if !ok {
			return nil, fmt.Errorf("unknown filter %s", name)
		}
		var g given
		if g, err = bind("filter "+name, f.parameters, args, kwargs); err == nil {
			result, err = f.apply(v, g)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", name, err)
	}
	return result, nil
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

func absolute(v any, _ given) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if i, ok := integer(v); ok {
		return max(i, -i), nil
	}
	f, ok := v.(float64)
	if !ok {
		return nil, fmt.Errorf("want a number, not a value of type %s", typeName(v))
	}
	return math.Abs(f), nil
}

func toInteger(v any, g given) (any, error) {
	base, err := g.integer(1, 10)
	if u, ok := v.(*undefined); ok || err != nil {
		if ok {
			err = u.err()
		}
		return nil, err
	}
	if s, ok := v.(string); ok {
		s = strings.ReplaceAll(strings.TrimFunc(s, isSpace), "_", "")
		if i, err := strconv.ParseInt(s, int(base), 64); err == nil {
			return i, nil
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return g.or(0, int64(0)), nil
		}
		v = f
	}
	f, ok := number(v)
	switch i, isInt := integer(v); {
	case isInt:
		return i, nil
	case !ok || math.IsNaN(f) || math.Abs(f) >= 1<<63:
		return g.or(0, int64(0)), nil
	}
	return int64(f), nil
}

func toFloat(v any, g given) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f, nil
		}
	}
	if f, ok := number(v); ok {
		return f, nil
	}
	return g.or(0, 0.0), nil
}

func round(v any, g given) (any, error) {
	precision, err := g.integer(0, 0)
	f, ok := number(v)
	if !ok || err != nil {
		return nil, orError(err, "want a number, not a value of type %s", typeName(v))
	}
	factor := math.Pow(10, float64(precision))
	switch method := g.or(1, "common"); method {
	case "ceil":
		return math.Ceil(f*factor) / factor, nil
	case "floor":
		return math.Floor(f*factor) / factor, nil
	case "common":
	default:
		return nil, fmt.Errorf("method is %s, want common, ceil or floor", repr(method))
	}
	if i, ok := integer(v); ok && precision >= 0 {
		return i, nil
	}
	if precision < 0 {
		return math.RoundToEven(f*factor) / factor, nil
	}
	return strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(min(precision, 400)), 64), 64)
}

var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func escape(v any, _ given) (any, error) { return entities.Replace(str(v)), nil }

func urlEncode(v any, _ given) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("want a string, not a value of type %s", typeName(v))
	}
	return strings.NewReplacer("+", "%20", "%2F", "/", "%7E", "~").Replace(url.QueryEscape(s)), nil
}

// titled capitalizes words, which begin after white space, hyphens and brackets.
func titled(v any, _ given) (any, error) {
	begins := true
	return strings.Map(func(r rune) rune {
		was := begins
		begins = isSpace(r) || strings.ContainsRune("-({[<", r)
		if was {
			return upperRune(r)
		}
		return lowerRune(r)
	}, str(v)), nil
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
