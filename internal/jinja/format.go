package jinja

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// conversion matches a conversion of the operator %.
var conversion = regexp.MustCompile(`%(\(([^)]*)\))?([-+ #0]*)([0-9]*)(\.([0-9]+))?([a-zA-Z%])`)

// percentFormat returns format % values.
func percentFormat(format string, values any) (any, error) {
	rest := []any{values}
	if t, ok := values.(*sequence); ok && t.kind == tuple {
		rest = t.items
	}
	var out strings.Builder
	used := 0
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			break
		}
		out.WriteString(format[:at])
		m := conversion.FindStringSubmatch(format[at:])
		if m == nil || !strings.HasPrefix(format[at:], m[0]) {
			return nil, errors.New("% is not followed by a conversion such as s or d")
		}
		format = format[at+len(m[0]):]
		if m[7] == "%" {
			out.WriteByte('%')
			continue
		}
		var v any
		if m[1] != "" {
			d, ok := values.(*Dict)
			if !ok {
				return nil, fmt.Errorf("%s wants a mapping", m[0])
			}
			if v, ok, _ = d.get(m[2]); !ok {
				return nil, fmt.Errorf("the mapping has no %s", repr(m[2]))
			}
		} else {
			if used == len(rest) {
				return nil, errors.New("a format has more conversions than values")
			}
			v = rest[used]
			used++
		}
		text, err := converted(m[7], m[3], m[4], m[5], v)
		if err != nil {
			return nil, err
		}
		out.WriteString(text)
	}
	if _, ok := values.(*Dict); used < len(rest) && !ok {
		return nil, errors.New("a format has fewer conversions than values")
	}
	return out.String() + format, nil
}

// converted returns the text of one conversion. Numbers have the same flags in Go.
func converted(verb, flags, width, precision string, v any) (string, error) {
	switch verb {
	case "s", "r", "a":
		text := str(v)
		if verb != "s" {
			text = repr(v)
		}
		return fmt.Sprintf("%"+strings.ReplaceAll(flags, "0", "")+width+precision+"s", text), nil
	case "d", "i", "u", "x", "X", "o":
		f, ok := number(v)
		i, isInt := integer(v)
		if !ok || !isInt && !strings.Contains("diu", verb) {
			return "", fmt.Errorf("%%%s wants a number, not a value of type %s", verb, typeName(v))
		}
		if !isInt {
			i = int64(f)
		}
		return fmt.Sprintf("%"+flags+width+precision+strings.NewReplacer("i", "d", "u", "d").Replace(verb), i), nil
	case "f", "F", "e", "E", "g", "G":
		f, ok := number(v)
		if !ok {
			return "", fmt.Errorf("%%%s wants a number, not a value of type %s", verb, typeName(v))
		}
		if precision == "" {
			precision = ".6" // Go's default of g differs
		}
		return fmt.Sprintf("%"+flags+width+precision+verb, f), nil
	}
	return "", fmt.Errorf("unsupported conversion %%%s", verb)
}

// replacement matches what is between the braces of a format: name, conversion and specification.
var replacement = regexp.MustCompile(`^([A-Za-z_0-9]*)((?:\.[A-Za-z_][A-Za-z_0-9]*|\[[^\]]*\])*)(?:!([rsa]))?(?::([^{}]*))?$`)

// braceFormat returns format.format(args, kwargs).
func braceFormat(format string, args []any, kwargs *Dict) (any, error) {
	var out strings.Builder
	next := 0
	for format != "" {
		i := strings.IndexAny(format, "{}")
		if i < 0 {
			break
		}
		out.WriteString(format[:i])
		if strings.HasPrefix(format[i:], format[i:i+1]+format[i:i+1]) {
			out.WriteByte(format[i])
			format = format[i+2:]
			continue
		}
		length := strings.IndexByte(format[i:], '}')
		if format[i] == '}' || length < 0 {
			return nil, errors.New("a format has a single brace")
		}
		m := replacement.FindStringSubmatch(format[i+1 : i+length])
		if m == nil {
			return nil, fmt.Errorf("unsupported format %s", format[i:i+length+1])
		}
		v, err := argument(m[1], args, kwargs, &next)
		if err != nil {
			return nil, err
		}
		if v, err = follow(v, m[2]); err != nil {
			return nil, err
		}
		if m[3] == "r" || m[3] == "a" {
			v = repr(v)
		} else if m[3] == "s" {
			v = str(v)
		}
		text, err := specified(v, m[4])
		if err != nil {
			return nil, err
		}
		out.WriteString(text)
		format = format[i+length+1:]
	}
	return out.String() + format, nil
}

// argument returns the argument of a format with a name or a position. Those without either are
// numbered.
func argument(name string, args []any, kwargs *Dict, next *int) (any, error) {
	at, err := strconv.Atoi(name)
	if name == "" {
		at, err = *next, nil
		*next++
	}
	if err == nil {
		if at >= len(args) {
			return nil, fmt.Errorf("a format wants %d values, not %d", at+1, len(args))
		}
		return args[at], nil
	}
	v, ok, _ := kwargs.get(name)
	if !ok {
		return nil, fmt.Errorf("a format wants the value %s", name)
	}
	return v, nil
}

// follow returns the attribute or element of v at the end of a path such as .a[0].
func follow(v any, path string) (any, error) {
	for path != "" && v != nil {
		var err error
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			var key any = path[1:end]
			if i, err := strconv.ParseInt(path[1:end], 10, 64); err == nil {
				key = i
			}
			v, err = item(v, key)
			path = path[end+1:]
		} else {
			end := 1 + strings.IndexAny(path[1:]+".", ".[")
			v, err = attribute(v, path[1:end])
			path = path[end:]
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

// specification matches [[fill]align][sign][#][0][width][,][.precision][type].
var specification = regexp.MustCompile(`^(?:(.?)([<>^]))?([-+ ]?)(#?)(0?)([0-9]*)(,?)(\.[0-9]+)?([a-zA-Z%]?)$`)

// specified returns a value as the specification of a format says.
func specified(v any, specificationText string) (string, error) {
	if specificationText == "" {
		return str(v), nil
	}
	m := specification.FindStringSubmatch(specificationText)
	if m == nil || m[7] != "" || m[9] == "%" || m[9] == "n" || m[9] == "b" || m[9] == "c" {
		return "", fmt.Errorf("unsupported format %s", specificationText)
	}
	verb, isNumber := m[9], false
	if _, ok := v.(string); !ok {
		_, isNumber = number(v)
	}
	if verb == "" {
		verb = "s"
		if _, ok := v.(float64); ok && m[8] != "" {
			verb = "g"
		} else if _, ok := integer(v); ok {
			verb = "d"
		}
	}
	text, err := converted(verb, m[3]+m[4], "", m[8], v)
	if err != nil {
		return "", err
	}
	width, _ := strconv.ParseInt("0"+m[6], 10, 64)
	fill, align := m[1], m[2]
	switch {
	case align != "":
	case isNumber:
		align = ">"
	default:
		align = "<"
	}
	if m[5] != "" && m[2] == "" {
		filled, err := stringMethods["zfill"].call(text, given{width})
		return str(filled), err
	}
	if fill == "" {
		fill = " "
	}
	n, _ := length(text)
	pad := max(width-int64(n), 0)
	before := map[string]int64{"<": 0, ">": pad, "^": pad / 2}[align]
	return strings.Repeat(fill, int(before)) + text + strings.Repeat(fill, int(pad-before)), nil
}
