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
// \s is Unicode's white space. Other lookaheads and \b, \w are errors.
type pattern struct{ root node }

// aheadMark stands for (?!\S) while regexp/syntax parses an expression.
const aheadMark = '\U0010fffe'

// whiteSpace is Unicode's White_Space, as ranges within a class.
const whiteSpace = `\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`

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

// standardSyntax replaces what regexp/syntax does not know or understands differently.
func standardSyntax(expression string) (string, error) {
	var out strings.Builder
	inClass := false
	for rest := expression; rest != ""; {
		switch {
		case strings.HasPrefix(rest, `(?!\S)`):
			out.WriteRune(aheadMark)
			rest = rest[len(`(?!\S)`):]
		case strings.HasPrefix(rest, "(?!"), strings.HasPrefix(rest, "(?="), strings.HasPrefix(rest, "(?<"):
			return "", fmt.Errorf("pattern %q: lookaround other than (?!\\S) is not supported", expression)
		case strings.HasPrefix(rest, `\`) && len(rest) > 1:
			switch c := rest[1]; {
			case c == 's' && inClass:
				out.WriteString(whiteSpace)
			case c == 's':
				out.WriteString("[" + whiteSpace + "]")
			case c == 'S' && !inClass:
				out.WriteString("[^" + whiteSpace + "]")
			case strings.IndexByte("SwWdDbB", c) >= 0:
				return "", fmt.Errorf("pattern %q: \\%c is not supported", expression, c)
			default:
				out.WriteString(rest[:2])
			}
			rest = rest[2:]
		default:
			switch rest[0] {
			case '[':
				if inClass { // a bracket, in the syntax of Oniguruma and Rust a class within a class
					return "", fmt.Errorf("pattern %q: a class within a class is not supported", expression)
				}
				inClass = true
			case ']':
				inClass = false
			}
			out.WriteByte(rest[0])
			rest = rest[1:]
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
			if r == aheadMark {
				next = spaceAhead{next}
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
		if r, _ := utf8.DecodeRuneInString(text[at:]); !unicode.Is(unicode.White_Space, r) {
			return -1
		}
	}
	return s.next.match(text, at)
}

// A class is a set of characters.
type class struct {
	ascii  [2]uint64
	ranges []rune // pairs, increasing, of all characters
}

func newClass(ranges []rune) *class {
	c := new(class)
	pairs := make([][2]rune, 0, len(ranges)/2)
	for i := 0; i < len(ranges); i += 2 {
		pairs = append(pairs, [2]rune{ranges[i], ranges[i+1]})
		for r := ranges[i]; r <= ranges[i+1] && r < utf8.RuneSelf; r++ {
			c.ascii[r/64] |= 1 << (r % 64)
		}
	}
	slices.SortFunc(pairs, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	for _, p := range pairs {
		c.ranges = append(c.ranges, p[0], p[1])
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
	i, found := slices.BinarySearch(c.ranges, r)
	if found || i%2 == 1 { // between a first and a last
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
	}
	return nil, fmt.Errorf("%s is not supported", re)
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
