package safetensors

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/microscale-go/microscale/internal/limits"
)

// A scanner reads JSON (RFC 8259) strictly, from left to right, and tracks byte offsets.
// encoding/json would silently replace invalid UTF-8 and lone surrogates and keep the last of
// two equal keys, and it reports no offsets.
type scanner struct {
	data []byte
	pos  int
	base int64  // offset in the file of data[0]
	fix  string // the remedy in errors

	integers []int64 // scratch of scanIntegers
}

// fail returns an error at a position of the data.
func (s *scanner) fail(pos int, format string, args ...any) *ContainerError {
	return &ContainerError{Offset: s.base + int64(pos), Problem: fmt.Sprintf(format, args...), Fix: s.fix}
}

// checkUTF8 fails at the first byte that is not part of a character.
func (s *scanner) checkUTF8() *ContainerError {
	if utf8.Valid(s.data) {
		return nil
	}
	pos := 0
	for {
		r, n := utf8.DecodeRune(s.data[pos:])
		if r == utf8.RuneError && n <= 1 {
			return s.fail(pos, "invalid UTF-8")
		}
		pos += n
	}
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for i, c := range s.data[s.pos:] {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			s.pos += i
			return c
		}
	}
	s.pos = len(s.data)
	return 0
}

// found describes the next token, for errors.
func (s *scanner) found() string {
	if s.peek(); s.pos == len(s.data) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return strconv.QuoteRune(r)
}

// expect consumes one punctuation character.
func (s *scanner) expect(c byte) *ContainerError {
	if s.peek() != c {
		return s.fail(s.pos, "invalid JSON: found %s, expected %q", s.found(), c)
	}
	s.pos++
	return nil
}

// end checks that only white space is left.
func (s *scanner) end() *ContainerError {
	if s.peek(); s.pos < len(s.data) {
		return s.fail(s.pos, "invalid JSON: found %s after the closing brace", s.found())
	}
	return nil
}

// object reads an object and calls member for each key, with the key's position
// and the scanner standing before the value. Two equal keys are an error.
func (s *scanner) object(member func(key string, at int) *ContainerError) *ContainerError {
	var few []string // all keys of most objects
	var seen map[string]struct{}
	return s.members(func(key string) bool {
		if _, twice := seen[key]; twice || slices.Contains(few, key) {
			return true
		}
		const maxFew = 8
		if len(few) < maxFew {
			few = append(few, key)
			return false
		}
		if seen == nil {
			seen = make(map[string]struct{})
		}
		seen[key] = struct{}{}
		return false
	}, member)
}

// members is object for a caller that detects duplicate keys itself.
func (s *scanner) members(twice func(key string) bool, member func(key string, at int) *ContainerError) *ContainerError {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.peek()
		at := s.pos
		key, err := s.str()
		if err != nil {
			return err
		}
		if twice(key) {
			return s.fail(at, "key %s appears twice", limits.Quote(key))
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key, at); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.expect('}')
		}
		s.pos++
	}
}

// array reads an array and calls element for each, with the scanner before it.
func (s *scanner) array(element func() *ContainerError) *ContainerError {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.expect(']')
		}
		s.pos++
	}
}

// str reads a string.
func (s *scanner) str() (string, *ContainerError) {
	if s.peek() != '"' {
		return "", s.fail(s.pos, "invalid JSON: found %s, expected a string", s.found())
	}
	open := s.pos
	s.pos++
	var decoded []byte // nil until the first escape
	from := s.pos      // start of the bytes not yet in decoded
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			tail := s.data[from:s.pos]
			s.pos++
			if decoded == nil {
				return string(tail), nil
			}
			return string(append(decoded, tail...)), nil
		case c == '\\':
			decoded = append(decoded, s.data[from:s.pos]...)
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			decoded = utf8.AppendRune(decoded, r)
			from = s.pos
		case c < ' ':
			return "", s.fail(s.pos, "invalid JSON: control character %q in a string", c)
		default:
			s.pos++
		}
	}
	return "", s.fail(open, "invalid JSON: the string that starts here never ends")
}

// escapes maps the character after a backslash to its value.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads an escape sequence of a string, two for a surrogate pair.
func (s *scanner) escape() (rune, *ContainerError) {
	at := s.pos
	if at+1 < len(s.data) {
		if c := escapes[s.data[at+1]]; c != 0 {
			s.pos += 2
			return rune(c), nil
		}
	}
	r, ok := s.unicodeEscape()
	if !ok {
		return 0, s.fail(at, "invalid JSON: bad escape in a string")
	}
	if utf16.IsSurrogate(r) {
		low, ok := s.unicodeEscape()
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return 0, s.fail(at, "invalid JSON: half a surrogate pair in a string")
		}
	}
	return r, nil
}

// unicodeEscape reads \uXXXX.
func (s *scanner) unicodeEscape() (rune, bool) {
	const length = 6
	if len(s.data)-s.pos < length || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(s.data[s.pos+2:s.pos+length]), 16, 16)
	if err != nil {
		return 0, false
	}
	s.pos += length
	return rune(v), true
}

// number reads a number and returns its text.
func (s *scanner) number() (string, *ContainerError) {
	s.peek()
	from := s.pos
	digits := func() bool {
		start := s.pos
		for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > start
	}
	accept := func(set ...byte) bool {
		for _, c := range set {
			if s.pos < len(s.data) && s.data[s.pos] == c {
				s.pos++
				return true
			}
		}
		return false
	}
	accept('-')
	ok := accept('0') || digits()
	if ok && accept('.') {
		ok = digits()
	}
	if ok && accept('e', 'E') {
		accept('+', '-')
		ok = digits()
	}
	if !ok {
		s.pos = from
		return "", s.fail(from, "invalid JSON: found %s, expected a number", s.found())
	}
	return string(s.data[from:s.pos]), nil
}

// integer reads a whole number from 0 to 2⁶³−1, written without sign, fraction
// or exponent.
func (s *scanner) integer(what string) (int64, *ContainerError) {
	s.peek()
	at := s.pos
	text, err := s.number()
	if err != nil {
		return 0, s.fail(at, "%s is not a number (found %s)", what, s.found())
	}
	v := int64(0)
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, s.fail(at, "%s is %s, expected a whole number that is not negative", what, limits.Quote(text))
		}
		d := int64(c - '0')
		if v > (math.MaxInt64-d)/10 {
			return 0, s.fail(at, "%s is %s, which exceeds 2^63-1", what, limits.Quote(text))
		}
		v = v*10 + d
	}
	return v, nil
}

// skip reads and discards any value, at most depth levels deep.
func (s *scanner) skip(depth int) *ContainerError {
	if depth == 0 {
		return s.fail(s.pos, "values are nested too deeply")
	}
	switch c := s.peek(); c {
	case '{':
		return s.object(func(string, int) *ContainerError { return s.skip(depth - 1) })
	case '[':
		return s.array(func() *ContainerError { return s.skip(depth - 1) })
	case '"':
		_, err := s.str()
		return err
	case 't', 'f', 'n':
		for _, word := range []string{"true", "false", "null"} {
			if rest := s.data[s.pos:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
				s.pos += len(word)
				return nil
			}
		}
		return s.fail(s.pos, "invalid JSON: found %s, expected a value", s.found())
	default:
		_, err := s.number()
		return err
	}
}
