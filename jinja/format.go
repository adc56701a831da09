package jinja

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// This file has the method format of strings.

// replacement matches what is between the braces of a format: name, conversion and specification.
var replacement = regexp.MustCompile(`^([A-Za-z_0-9]*)((?:\.[A-Za-z_][A-Za-z_0-9]*|\[[^\]]*\])*)(?:!([rsa]))?(?::([^{}]*))?$`)

// braceFormat returns format.format(args, kwargs).
func braceFormat(format string, args []any, kwargs *Dict) (any, error) {
	var out strings.Builder
	var fields numbering
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
		v, err := fields.argument(m[1], args, kwargs)
		if err != nil {
			return nil, err
		}
		if v, err = follow(v, m[2]); err != nil {
			return nil, err
		}
		switch m[3] {
		case "r":
			v = repr(v)
		case "a":
			v = ascii(v)
		case "s":
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

// A numbering says how the fields of a format find their arguments.
type numbering struct {
	next              int  // argument of a field without number
	manual, automatic bool // whether a field has a number, whether one has none
}

// argument returns the argument of a field with a name or a number. Fields without either are numbered.
func (n *numbering) argument(name string, args []any, kwargs *Dict) (any, error) {
	at, isNumber := int64(n.next), name == ""
	if isNumber {
		n.next++
		n.automatic = true
	} else if at, isNumber = index(name); isNumber {
		n.manual = true
	}
	switch {
	case n.manual && n.automatic:
		return nil, errors.New("a format has fields with and without numbers")
	case isNumber && at >= int64(len(args)):
		return nil, fmt.Errorf("a format wants %d values, not %d", at+1, len(args))
	case isNumber:
		return args[at], nil
	}
	v, ok, _ := kwargs.get(name)
	if !ok {
		return nil, fmt.Errorf("a format wants the value %s", name)
	}
	return v, nil
}

// index returns the value of digits.
func index(digits string) (int64, bool) {
	i, err := strconv.ParseInt(digits, 10, 64)
	return i, err == nil && digits[0] != '-' && digits[0] != '+'
}

// follow returns the attribute or element of v at the end of a path such as .a[0].
func follow(v any, path string) (any, error) {
	for path != "" && v != nil {
		var err error
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			var key any = path[1:end]
			if i, ok := index(path[1:end]); ok {
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

// specification matches [[fill]align][sign][#][0][width][grouping][.precision][type].
var specification = regexp.MustCompile(`^(?:((?s:.)?)([<>=^]))?([-+ ]?)(#?)(0?)([0-9]*)([,_]?)(?:\.([0-9]+))?([a-zA-Z%]?)$`)

// specified formats v by a specification such as >8.3f.
func specified(v any, text string) (string, error) {
	if text == "" {
		return str(v), nil
	}
	m := specification.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("unsupported format %s", text)
	}
	f := &numberFormat{sign: m[3], alternate: m[4] != "", grouping: m[7], precision: -1, verb: m[9]}
	fill, align, width, err := m[1], m[2], int64(0), error(nil)
	if m[6] != "" {
		width, err = strconv.ParseInt(m[6], 10, 32)
	}
	if m[8] != "" && err == nil {
		f.precision, err = strconv.Atoi(m[8])
	}
	if err != nil || width > maxWidth || f.precision > maxWidth {
		return "", fmt.Errorf("unsupported format %s", text)
	}
	if m[5] != "" {
		fill = orText(fill, "0")
	}
	var sign, digits string
	switch v := v.(type) {
	case string:
		if align == "=" || f.sign != "" || f.alternate || f.grouping != "" || f.verb != "s" && f.verb != "" {
			return "", fmt.Errorf("the format %s is for numbers, not for strings", text)
		}
		digits, align = shortened(v, f.precision), orText(align, "<")
	case bool, int64, float64:
		if align == "" && m[5] != "" {
			align = "="
		}
		if align == "=" && fill == "0" && f.grouping != "" {
			return "", fmt.Errorf("unsupported format %s", text)
		}
		align = orText(align, ">")
		if sign, digits, err = f.format(v); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("the format %s is for strings and numbers, not for a value of type %s", text, typeName(v))
	}
	n, _ := length(sign + digits)
	pad := int(max(width-int64(n), 0))
	before := map[string]int{"<": 0, ">": pad, "^": pad / 2}[align]
	fill = orText(fill, " ")
	if align == "=" {
		return sign + strings.Repeat(fill, pad) + digits, nil
	}
	return strings.Repeat(fill, before) + sign + digits + strings.Repeat(fill, pad-before), nil
}

// orText returns s, or other if s is empty.
func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// shortened returns the first characters of s: all if precision is negative.
func shortened(s string, precision int) string {
	if runes := []rune(s); precision >= 0 && precision < len(runes) {
		return string(runes[:precision])
	}
	return s
}
