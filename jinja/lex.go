package jinja

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A token is a part of a template.
type token struct {
	kind tokenKind
	text string // of text and strings: their value
	line int
}

type tokenKind int

const (
	end tokenKind = iota
	text
	name
	number10 // an integer, in any base
	decimal
	quoted
	operator
	beginPrint // {{
	endPrint
	beginBlock // {%
	endBlock
)

// A lexer divides a template into tokens. It removes the white space that trim_blocks, lstrip_blocks
// and the signs of tags remove.
type lexer struct {
	source string
	pos    int
	tokens []token
	line   int // of the last token
	at     int // position of the last token

	lineStart bool // whether the text at pos begins a line, of the white space kept
	err       error
}

// lex returns the tokens of a template. lex drops one final newline.
func lex(source string) ([]token, error) {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.source) && l.err == nil {
		l.text()
	}
	l.add(end, "")
	return l.tokens, l.err
}

func (l *lexer) add(k tokenKind, value string) {
	l.line += strings.Count(l.source[l.at:min(l.pos, len(l.source))], "\n")
	l.at = l.pos
	l.tokens = append(l.tokens, token{k, value, l.line})
}

func (l *lexer) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("line %d: %s", 1+strings.Count(l.source[:min(l.pos, len(l.source))], "\n"), fmt.Sprintf(format, args...))
	}
}

// text reads text and the tag after it.
func (l *lexer) text() {
	rest := l.source[l.pos:]
	from := 0
	for ; from+1 < len(rest); from++ {
		if rest[from] == '{' && strings.IndexByte("{%#", rest[from+1]) >= 0 {
			break
		}
	}
	if from+1 >= len(rest) {
		l.write(rest)
		l.pos = len(l.source)
		return
	}
	sign := byte(0)
	if from+2 < len(rest) && (rest[from+2] == '-' || rest[from+2] == '+') {
		sign = rest[from+2]
	}
	l.write(l.strip(rest[:from], sign, rest[from+1] != '{'))
	l.pos += from + 2
	if sign != 0 && (sign == '-' || rest[from+1] != '{') {
		l.pos++
	}
	l.lineStart = false
	switch rest[from+1] {
	case '#':
		l.comment()
	case '{':
		l.add(beginPrint, "")
		l.tag("}}", endPrint)
	default:
		if !l.raw() {
			l.add(beginBlock, "")
			l.tag("%}", endBlock)
		}
	}
}

// write adds text.
func (l *lexer) write(s string) {
	if s != "" {
		l.add(text, s)
	}
}

// strip removes the white space before a tag with a sign.
func (l *lexer) strip(s string, sign byte, block bool) string {
	line := strings.LastIndexByte(s, '\n') + 1
	switch {
	case sign == '-':
		return strings.TrimRightFunc(s, isSpace)
	case block && sign != '+' && (line > 0 || l.lineStart) && strings.TrimFunc(s[line:], isSpace) == "":
		return s[:line]
	}
	return s
}

// skip removes the white space after a tag with a sign.
func (l *lexer) skip(sign byte, block bool) {
	rest := l.source[l.pos:]
	switch {
	case sign == '-':
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		n := len(rest) - len(trimmed)
		l.lineStart = strings.HasSuffix(rest[:n], "\n")
		l.pos += n
	case block && sign != '+' && strings.HasPrefix(rest, "\n"):
		l.lineStart = true
		l.pos++
	}
}

func (l *lexer) comment() {
	i := strings.Index(l.source[l.pos:], "#}")
	if i < 0 {
		l.fail("a comment has no end")
		return
	}
	sign := byte(0)
	if i > 0 {
		if c := l.source[l.pos+i-1]; c == '-' || c == '+' {
			sign = c
		}
	}
	l.pos += i + 2
	l.skip(sign, true)
}

// raw reads a raw block, if the tag at pos begins one.
func (l *lexer) raw() bool {
	_, n, sign, ok := plainTag(l.source[l.pos:], "raw")
	if !ok {
		return false
	}
	l.pos += n
	l.lineStart = false
	if sign == '-' {
		l.skip(sign, true)
	}
	for at := l.pos; ; at += 2 {
		i := strings.Index(l.source[at:], "{%")
		if i < 0 {
			l.fail("{%% raw %%} has no {%% endraw %%}")
			return true
		}
		at += i
		if begin, n, sign, ok := plainTag(l.source[at+2:], "endraw"); ok {
			l.write(l.strip(l.source[l.pos:at], begin, true))
			l.pos = at + 2 + n
			l.lineStart = false
			l.skip(sign, true)
			return true
		}
	}
}

// plainTag reads a tag that has only a word, after its {%, and returns its signs and length.
func plainTag(s, word string) (begin byte, n int, sign byte, ok bool) {
	i := strings.Index(s, "%}")
	if i < 0 {
		return 0, 0, 0, false
	}
	body := s[:i]
	if body != "" && (body[0] == '-' || body[0] == '+') {
		begin, body = body[0], body[1:]
	}
	if last := len(body) - 1; last >= 0 && (body[last] == '-' || body[last] == '+') {
		sign, body = body[last], body[:last]
	}
	return begin, i + 2, sign, strings.TrimSpace(body) == word
}

// operators, the longest first.
var operators = []string{"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ".",
	":", ",", "|", ";"}

// tag reads the tokens of a tag and its end. Brackets that are open hide the end.
func (l *lexer) tag(closing string, ending tokenKind) {
	var open []byte
	for l.err == nil {
		rest := strings.TrimLeftFunc(l.source[l.pos:], isSpace)
		l.pos = len(l.source) - len(rest)
		if rest == "" {
			l.fail("a tag has no %s", closing)
			return
		}
		if n, sign := tagEnd(rest, closing, ending == endBlock); n > 0 && len(open) == 0 {
			l.pos += n
			l.add(ending, "")
			l.skip(sign, ending == endBlock)
			return
		}
		first, _ := utf8.DecodeRuneInString(rest)
		switch {
		case first == '_' || unicode.IsLetter(first):
			n := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			if n < 0 {
				n = len(rest)
			}
			l.add(name, rest[:n])
			l.pos += n
		case first >= '0' && first <= '9':
			l.number(rest)
		case first == '"' || first == '\'':
			l.string(rest)
		default:
			open = l.operator(rest, open)
		}
	}
}

// tagEnd returns the length of the end of a tag and its sign: 0 if s does not begin with one.
func tagEnd(s, closing string, block bool) (n int, sign byte) {
	if strings.HasPrefix(s, closing) {
		return len(closing), 0
	}
	if (s[0] == '-' || s[0] == '+' && block) && strings.HasPrefix(s[1:], closing) {
		return 1 + len(closing), s[0]
	}
	return 0, 0
}

func (l *lexer) operator(rest string, open []byte) []byte {
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			open = append(open, op[0])
		case ")", "]", "}":
			if len(open) == 0 || strings.IndexByte("([{", open[len(open)-1]) != strings.IndexByte(")]}", op[0]) {
				l.fail("unexpected %s", op)
				return open
			}
			open = open[:len(open)-1]
		}
		l.add(operator, op)
		l.pos += len(op)
		return open
	}
	r, _ := utf8.DecodeRuneInString(rest)
	l.fail("unexpected character %q", r)
	return open
}

func (l *lexer) string(rest string) {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			value, err := unescape(rest[1:i])
			if err != nil {
				l.fail("%v", err)
			}
			l.add(quoted, value)
			l.pos += i + 1
			return
		}
	}
	l.fail("a string has no end")
}

// The patterns of Jinja2. 0777 is two integers, and so an error.
var (
	floatPattern = regexp.MustCompile(`^(?i)([0-9]+_)*[0-9]+((\.([0-9]+_)*[0-9]+)?e[-+]?([0-9]+_)*[0-9]+|\.([0-9]+_)*[0-9]+)`)
	intPattern   = regexp.MustCompile(`^(?i)(0b(_?[01])+|0o(_?[0-7])+|0x(_?[0-9a-f])+|[1-9](_?[0-9])*|0(_?0)*)`)
)

// number reads an integer or a float. After a dot, it is an index: 0.1 in list.0.1 is two of them.
func (l *lexer) number(rest string) {
	kind, digits := decimal, floatPattern.FindString(rest)
	if digits == "" || l.source[l.pos-1] == '.' {
		kind, digits = number10, intPattern.FindString(rest)
	}
	l.add(kind, strings.ReplaceAll(digits, "_", ""))
	l.pos += len(digits)
}
