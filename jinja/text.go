package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str returns str(v).
func str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *undefined:
		return ""
	}
	var out strings.Builder
	writeRepr(&out, v)
	return out.String()
}

// repr returns repr(v).
func repr(v any) string {
	var out strings.Builder
	writeRepr(&out, v)
	return out.String()
}

func writeRepr(out *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		out.WriteString(strings.ToUpper(strconv.FormatBool(v)[:1]) + strconv.FormatBool(v)[1:])
	case int64:
		out.WriteString(strconv.FormatInt(v, 10))
	case float64:
		out.WriteString(floatText(v))
	case string:
		writeQuoted(out, v)
	case *undefined:
		out.WriteString("Undefined")
	case *sequence:
		writeSequence(out, v)
	case *Dict:
		writeDict(out, v)
	case *namespace:
		out.WriteString("<Namespace ")
		writeDict(out, v.attributes)
		out.WriteByte('>')
	case *function:
		if v.attributes != nil { // a macro
			name := "anonymous"
			if v.name != "" {
				name = repr(v.name)
			}
			out.WriteString("<Macro " + name + ">")
			return
		}
		out.WriteString("<function " + v.name + ">")
	case *loop:
		fmt.Fprintf(out, "<LoopContext %d/%d>", v.index+1, len(v.items))
	default:
		out.WriteString("<" + typeName(v) + ">")
	}
}

func writeSequence(out *strings.Builder, s *sequence) {
	begin, end := "[", "]"
	switch s.kind {
	case ranges, generator:
		out.WriteString(s.name)
		return
	case view:
		begin, end = s.name+"([", "])"
	case tuple:
		begin, end = "(", ")"
		if len(s.items) == 1 {
			end = ",)"
		}
	}
	out.WriteString(begin)
	for i, item := range s.items {
		if i > 0 {
			out.WriteString(", ")
		}
		writeRepr(out, item)
	}
	out.WriteString(end)
}

func writeDict(out *strings.Builder, d *Dict) {
	out.WriteByte('{')
	for i, k := range d.keys {
		if i > 0 {
			out.WriteString(", ")
		}
		writeRepr(out, k)
		out.WriteString(": ")
		writeRepr(out, d.values[i])
	}
	out.WriteByte('}')
}

// floatText returns repr of a float: the shortest digits, with an exponent below 1e-4 and from 1e16.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case math.IsNaN(f):
		return "nan"
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	if exponent, _ := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:]); exponent < -4 || exponent >= 16 {
		return text
	}
	text = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// writeQuoted writes a string as Python's repr.
func writeQuoted(out *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	out.WriteRune(quote)
	for i, r := range s {
		switch {
		case r == quote || r == '\\':
			out.WriteString(`\` + string(r))
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			out.WriteByte(s[i])
		case r == ' ' || r < unicode.MaxASCII && r > ' ' || r > unicode.MaxASCII && unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(out, `\u%04x`, r)
		default:
			fmt.Fprintf(out, `\U%08x`, r)
		}
	}
	out.WriteRune(quote)
}

// ascii returns repr(v) with escapes for all characters outside ASCII.
func ascii(v any) string {
	return replacedRunes(repr(v), func(r rune) string {
		switch {
		case r <= unicode.MaxASCII:
			return string(r)
		case r < 0x100:
			return fmt.Sprintf(`\x%02x`, r)
		case r < 0x10000:
			return fmt.Sprintf(`\u%04x`, r)
		}
		return fmt.Sprintf(`\U%08x`, r)
	})
}

// isSpace reports whether Python regards r as white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// unescape returns the value of a string literal without its quotes.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	const simple, values = `nrtabfv\'"`, "\n\r\t\a\b\f\v\\'\""
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, `\`)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if rest == "" {
			return "", fmt.Errorf("a string ends with a backslash")
		}
		if i := strings.IndexByte(simple, rest[0]); i >= 0 {
			out.WriteByte(values[i])
			s = rest[1:]
			continue
		}
		r, n, err := escapedRune(rest)
		switch {
		case err != nil:
			return "", err
		case r >= 0xd800 && r < 0xe000 || r > unicode.MaxRune || r < 0:
			return "", fmt.Errorf(`\%s: not a character`, rest[:n])
		case rest[0] == '\n':
			n = 1
		case n == 0:
			out.WriteByte('\\')
		default:
			out.WriteRune(r)
		}
		s = rest[n:]
	}
}

// escapedRune reads the octal or hexadecimal digits after a backslash, and returns their length: 0
// if there are none.
func escapedRune(s string) (r rune, n int, err error) {
	var digits int
	switch s[0] {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case 'N':
		return 0, 0, fmt.Errorf(`names of characters such as \N{DASH} are not supported`)
	default:
		for n < min(3, len(s)) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		if n == 0 {
			return 0, 0, nil
		}
		v, err := strconv.ParseUint(s[:n], 8, 32)
		return rune(v), n, err
	}
	if len(s) <= digits {
		return 0, 0, fmt.Errorf(`\%s: want %d digits`, s, digits)
	}
	v, err := strconv.ParseUint(s[1:1+digits], 16, 32)
	if err != nil {
		return 0, 0, fmt.Errorf(`\%s: want %d hexadecimal digits`, s[:1+digits], digits)
	}
	return rune(v), 1 + digits, nil
}
