package tokenizer

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A pattern is a regular expression of the kind that tokenizers have. Unlike Go's package
// regexp it looks ahead: (?!\S) is the end of the text or white space. It takes the first
// alternative that matches, and backs up, as Perl does. It compiles what regexp/syntax parses;
// classes are those of Unicode 16. Other lookaheads and \b, \w are errors, except in the patterns
// that scanners have (scan.go).
type pattern struct{ root node }

// Marks stand for (?!\S) and $ while regexp/syntax parses an expression.
const (
	aheadMark = '\U0010fffe'
	endMark   = '\U0010ffff'
)

func compile(expression string) (*pattern, error) {
	plain, err := standardSyntax(expression)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(plain, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expression, err)
	}
	root, err := newNode(tree, accept{})
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expression, err)
	}
	return &pattern{root}, nil
}

// standardSyntax replaces what regexp/syntax does not know or understands differently: (?!\S), classes
// of characters, whose Unicode version is another, and $.
func standardSyntax(expression string) (string, error) {
	var out strings.Builder
	for p := (classParser{expression}); p.rest != ""; {
		switch {
		case strings.HasPrefix(p.rest, `(?!\S)`):
			out.WriteRune(aheadMark)
			p.rest = p.rest[len(`(?!\S)`):]
		case strings.HasPrefix(p.rest, "(?!"), strings.HasPrefix(p.rest, "(?="), strings.HasPrefix(p.rest, "(?<"):
			return "", fmt.Errorf("pattern %q: lookaround other than (?!\\S) is not supported", expression)
		case p.rest[0] == '\\':
			set, char, isSet, err := p.escape()
			switch {
			case err != nil:
				return "", fmt.Errorf("pattern %q: %w", expression, err)
			case isSet:
				out.WriteString(set.expression(false))
			default:
				fmt.Fprintf(&out, `\x{%x}`, char)
			}
		case p.rest[0] == '[':
			p.rest = p.rest[1:]
			set, negated, err := p.class(1)
			if err != nil {
				return "", fmt.Errorf("pattern %q: %w", expression, err)
			}
			out.WriteString(set.expression(negated))
		case p.rest[0] == '$':
			out.WriteRune(endMark)
			p.rest = p.rest[1:]
		default:
			out.WriteByte(p.rest[0])
			p.rest = p.rest[1:]
		}
	}
	return out.String(), nil
}

// match returns the end of the match of p that begins at text[at:], or -1.
func (p *pattern) match(text string, at int) int {
	return p.root.match(text, at)
}

// find returns the first match at or after a position, which is not empty; from is -1 if there
// is none.
func (p *pattern) find(text string, at int) (from, to int) {
	for at < len(text) {
		if end := p.match(text, at); end > at {
			return at, end
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return -1, -1
}

// A node is a part of a pattern with all that follows it. match returns the end of the match
// that begins at a position, or -1.
type node interface{ match(text string, at int) int }

// accept is the end of a pattern.
type accept struct{}

func (accept) match(_ string, at int) int { return at }

// newNode returns the node of an expression that next follows.
func newNode(re *syntax.Regexp, next node) (n node, err error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return next, nil
	case syntax.OpLiteral:
		for _, r := range slices.Backward(re.Rune) {
			switch r {
			case aheadMark:
				next = spaceAhead{next}
				continue
			case endMark:
				next = lineEnd{next}
				continue
			}
			runes := []rune{r, r}
			for folded := unicode.SimpleFold(r); re.Flags&syntax.FoldCase != 0 && folded != r; folded = unicode.SimpleFold(folded) {
				runes = append(runes, folded, folded)
			}
			next = repeat{newClass(runes), 1, 1, next}
		}
		return next, nil
	case syntax.OpCharClass:
		return repeat{newClass(re.Rune), 1, 1, next}, nil
	case syntax.OpCapture:
		return newNode(re.Sub[0], next)
	case syntax.OpConcat:
		for _, sub := range slices.Backward(re.Sub) {
			if next, err = newNode(sub, next); err != nil {
				return nil, err
			}
		}
		return next, nil
	case syntax.OpAlternate:
		all := make(alternatives, len(re.Sub))
		for i, sub := range re.Sub {
			if all[i], err = newNode(sub, next); err != nil {
				return nil, err
			}
		}
		return all, nil
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return newRepeat(re, next)
	}
	return nil, fmt.Errorf("%s is not supported", re)
}

// alternatives are tried in their order.
type alternatives []node

func (a alternatives) match(text string, at int) int {
	for _, n := range a {
		if end := n.match(text, at); end >= 0 {
			return end
		}
	}
	return -1
}

// A spaceAhead is (?!\S).
type spaceAhead struct{ next node }

func (s spaceAhead) match(text string, at int) int {
	if at < len(text) {
		if r, _ := utf8.DecodeRuneInString(text[at:]); !whiteSpace.has(r) {
			return -1
		}
	}
	return s.next.match(text, at)
}

// A lineEnd is $: the end of the text or of a line, as in Oniguruma.
type lineEnd struct{ next node }

func (e lineEnd) match(text string, at int) int {
	if at < len(text) && text[at] != '\n' {
		return -1
	}
	return e.next.match(text, at)
}

// A class is a set of characters.
type class struct {
	ascii [2]uint64
	all   runeSet
}

func newClass(ranges []rune) *class {
	c := &class{all: newSet(ranges)}
	for r := range rune(utf8.RuneSelf) {
		if c.all.has(r) {
			c.ascii[r/64] |= 1 << (r % 64)
		}
	}
	return c
}

// size returns the bytes of the character at a position if the class has it, and 0 otherwise. A
// byte that is not UTF-8 counts as U+FFFD.
func (c *class) size(text string, at int) int {
	if at >= len(text) {
		return 0
	}
	if b := text[at]; b < utf8.RuneSelf {
		return int(c.ascii[b/64] >> (b % 64) & 1)
	}
	r, size := utf8.DecodeRuneInString(text[at:])
	if c.all.has(r) {
		return size
	}
	return 0
}

// A repeat is a character of a class between min and max times, as often as possible first.
// max is -1 where there is no limit.
type repeat struct {
	class    *class
	min, max int
	next     node
}

func newRepeat(re *syntax.Regexp, next node) (node, error) {
	r := repeat{min: re.Min, max: re.Max, next: next}
	switch re.Op {
	case syntax.OpStar:
		r.min, r.max = 0, -1
	case syntax.OpPlus:
		r.min, r.max = 1, -1
	case syntax.OpQuest:
		r.min, r.max = 0, 1
	}
	c, ok := singleClass(re.Sub[0])
	switch {
	case re.Flags&syntax.NonGreedy != 0:
	case ok:
		r.class = c
		return r, nil
	case r.min == 0 && r.max == 1:
		inner, err := newNode(re.Sub[0], next)
		return alternatives{inner, next}, err
	case r.min <= 1 && next == accept{}: // nothing follows, so there is nothing to back up for
		inner, err := newNode(re.Sub[0], accept{})
		return loop{inner, r.min, r.max}, err
	}
	return nil, fmt.Errorf("%s is not supported", re)
}

// A loop is an expression between min and max times, with nothing after it; min is 0 or 1. max is -1 where
// there is no limit.
type loop struct {
	body     node
	min, max int
}

func (l loop) match(text string, at int) int {
	for n := 0; n != l.max; n++ {
		end := l.body.match(text, at)
		if end < 0 && n < l.min {
			return -1
		}
		if end <= at {
			break
		}
		at = end
	}
	return at
}

// singleClass returns the class of an expression that matches one character. It does not descend
// into other expressions, so that nested options compile in linear time.
func singleClass(re *syntax.Regexp) (*class, bool) {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpCharClass && (re.Op != syntax.OpLiteral || len(re.Rune) != 1) {
		return nil, false
	}
	n, err := newNode(re, accept{})
	one, ok := n.(repeat) // (?!\S) is another node
	return one.class, ok && err == nil
}

func (r repeat) match(text string, at int) int {
	end, n := at, 0
	for n != r.max {
		size := r.class.size(text, end)
		if size == 0 {
			break
		}
		end += size
		n++
	}
	for ; n >= r.min; n-- {
		if to := r.next.match(text, end); to >= 0 {
			return to
		}
		if n > 0 {
			_, size := utf8.DecodeLastRuneInString(text[at:end])
			end -= size
		}
	}
	return -1
}
