package jinja

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// This file has the operator % of strings.

// conversion matches a conversion of the operator %.
var conversion = regexp.MustCompile(`^%(?:\(([^()]*)\))?([-+ #0]*)([0-9]*|\*)(\.(?:[0-9]*|\*))?[hlL]?([a-zA-Z%])`)

// maxWidth limits widths and precisions of formats.
const maxWidth = 100000

// A percentFormatter takes the values of a format.
type percentFormatter struct {
	mapping any // nil: none
	rest    []any
}

// percentFormat returns format % values.
func percentFormat(format string, values any) (any, error) {
	p := &percentFormatter{mapping: values, rest: []any{values}}
	switch t, ok := values.(*sequence); {
	case ok && t.kind == tuple:
		p.mapping, p.rest = nil, t.items
	case ok && t.kind >= view:
		p.mapping = nil
	}
	switch values.(type) {
	case *Dict, *sequence, *undefined:
	default:
		p.mapping = nil
	}
	var out strings.Builder
	for {
		before, _, found := strings.Cut(format, "%")
		out.WriteString(before)
		if !found {
			break
		}
		m := conversion.FindStringSubmatch(format[len(before):])
		if m == nil {
			return nil, errors.New("% is not followed by a conversion such as s or d")
		}
		format = format[len(before)+len(m[0]):]
		if m[0] == "%%" {
			out.WriteByte('%')
			continue
		}
		text, err := p.convert(m)
		if err != nil {
			return nil, err
		}
		out.WriteString(text)
	}
	if len(p.rest) > 0 && p.mapping == nil {
		return nil, errors.New("a format has fewer conversions than values")
	}
	return out.String(), nil
}

// next returns the next value.
func (p *percentFormatter) next() (any, error) {
	if len(p.rest) == 0 {
		return nil, errors.New("a format has more conversions than values")
	}
	v := p.rest[0]
	p.rest = p.rest[1:]
	return v, nil
}

// size returns a width or precision, which may be the next value.
func (p *percentFormatter) size(text string) (int, error) {
	if text != "*" {
		n, err := strconv.Atoi("0" + text)
		if err != nil || n > maxWidth {
			return 0, fmt.Errorf("unsupported width %s", text)
		}
		return n, nil
	}
	v, err := p.next()
	n, ok := v.(int64)
	if err != nil || !ok || n > maxWidth || n < -maxWidth {
		return 0, orError(err, "unsupported width %s", repr(v))
	}
	return int(n), nil
}

// convert returns the text of a match of conversion.
func (p *percentFormatter) convert(m []string) (string, error) {
	flags, precision := m[2], -1
	width, err := p.size(m[3])
	if m[4] != "" && err == nil {
		precision, err = p.size(m[4][1:])
		precision = max(precision, 0)
	}
	if err != nil {
		return "", err
	}
	if width < 0 {
		width, flags = -width, flags+"-"
	}
	var v any
	if strings.HasPrefix(m[0], "%(") {
		d, ok := p.mapping.(*Dict)
		if !ok {
			return "", fmt.Errorf("%s wants a mapping", m[0])
		}
		if v, ok, _ = d.get(m[1]); !ok {
			return "", fmt.Errorf("the mapping has no %s", repr(m[1]))
		}
	} else if v, err = p.next(); err != nil {
		return "", err
	}
	sign, digits, err := converted(m[5], flags, precision, v)
	if err != nil {
		return "", err
	}
	n, _ := length(sign + digits)
	pad := max(width-n, 0)
	switch {
	case strings.Contains(flags, "-"):
		return sign + digits + strings.Repeat(" ", pad), nil
	case strings.Contains(flags, "0") && !strings.Contains("srac", m[5]):
		return sign + strings.Repeat("0", pad) + digits, nil
	}
	return strings.Repeat(" ", pad) + sign + digits, nil
}

// converted returns the sign and the other characters of one conversion. Texts have no sign.
func converted(verb, flags string, precision int, v any) (sign, digits string, err error) {
	f := &numberFormat{alternate: strings.Contains(flags, "#"), precision: precision, verb: verb}
	switch {
	case strings.Contains(flags, "+"):
		f.sign = "+"
	case strings.Contains(flags, " "):
		f.sign = " "
	}
	_, isNumber := number(v)
	switch verb {
	case "s":
		return "", shortened(str(v), precision), nil
	case "r":
		return "", shortened(repr(v), precision), nil
	case "a":
		return "", shortened(ascii(v), precision), nil
	case "c":
		if s, ok := v.(string); ok {
			if n, _ := length(s); n == 1 {
				return "", s, nil
			}
		}
		i, ok := integer(v)
		if !ok || i < 0 || i > 0x10ffff {
			return "", "", errors.New("%c wants a character")
		}
		return "", string(rune(i)), nil
	case "d", "i", "u":
		if x, ok := v.(float64); ok {
			if v, err = truncated(x); err != nil {
				return "", "", err
			}
		}
		f.verb, f.precision, f.alternate = "d", -1, false
	case "x", "X", "o":
		if _, isInt := integer(v); !isInt {
			isNumber = false
		}
		f.precision = -1
	case "f", "F", "e", "E", "g", "G":
		if isNumber {
			v, _ = number(v)
		}
	default:
		return "", "", fmt.Errorf("unsupported conversion %%%s", verb)
	}
	if !isNumber {
		return "", "", fmt.Errorf("%%%s wants a number, not a value of type %s", verb, typeName(v))
	}
	sign, digits, err = f.format(v)
	if strings.Contains("diuxXo", verb) {
		digits = strings.Repeat("0", max(precision-len(digits), 0)) + digits
	}
	return sign, digits, err
}
