package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A runeSet is a set of characters: pairs of a first and a last one, increasing and not adjacent.
type runeSet []rune

// newSet returns the union of ranges, which are pairs in any order.
func newSet(ranges []rune) runeSet {
	pairs := make([][2]rune, 0, len(ranges)/2)
	for i := 0; i < len(ranges); i += 2 {
		pairs = append(pairs, [2]rune{ranges[i], ranges[i+1]})
	}
	slices.SortFunc(pairs, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	var set runeSet
	for _, p := range pairs {
		if n := len(set); n > 0 && p[0] <= set[n-1]+1 {
			set[n-1] = max(set[n-1], p[1])
			continue
		}
		set = append(set, p[0], p[1])
	}
	return set
}

// complement returns all other characters.
func (s runeSet) complement() (other runeSet) {
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > next {
			other = append(other, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		other = append(other, next, unicode.MaxRune)
	}
	return other
}

// intersect returns the characters of both sets.
func (s runeSet) intersect(other runeSet) runeSet {
	return newSet(append(slices.Clone(s.complement()), other.complement()...)).complement()
}

// has reports whether a character is in the set.
func (s runeSet) has(r rune) bool {
	i, found := slices.BinarySearch(s, r)
	return found || i%2 == 1 // between a first and a last
}

// expression returns the class of the set in the syntax of package regexp.
func (s runeSet) expression(negated bool) string {
	if len(s) == 0 {
		s, negated = runeSet{0, unicode.MaxRune}, !negated
	}
	var b strings.Builder
	b.WriteByte('[')
	if negated {
		b.WriteByte('^')
	}
	for i := 0; i < len(s); i += 2 {
		fmt.Fprintf(&b, `\x{%x}-\x{%x}`, s[i], s[i+1])
	}
	b.WriteByte(']')
	return b.String()
}

// whiteSpace is Unicode's White_Space.
var whiteSpace = setOf(unicode.White_Space)

// Sets that are used outside patterns: \p{N}, \d and \w.
var (
	numbers        = property("N")
	decimals       = property("Nd")
	wordCharacters = newSet(slices.Concat(property("L"), property("M"), property("Nd"), property("Nl"), property("Pc"),
		runeSet{'\u200c', '\u200d'}))
)

func setOf(table *unicode.RangeTable) runeSet {
	var ranges []rune
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			ranges = append(ranges, lo, hi)
			return
		}
		for r := lo; r <= hi; r += stride {
			ranges = append(ranges, r, r)
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return newSet(ranges)
}

// property returns the characters of a general category, such as L or Lu, or of a script, in
// Unicode 16; nil for an unknown name.
func property(name string) runeSet {
	if full, ok := unicode.CategoryAliases[name]; ok {
		name = full
	}
	table, ok := unicode.Categories[name]
	if !ok {
		if table, ok = unicode.Scripts[name]; !ok {
			return nil
		}
	}
	ranges := slices.Clone(setOf(table))
	for newer, more := range unicode16 {
		if newer == name || len(name) == 1 && newer[0] == name[0] && len(newer) == 2 {
			ranges = append(ranges, more...)
		}
	}
	set := newSet(ranges)
	for newer, more := range unicode16 {
		if len(name) == 2 && len(newer) == 2 && newer != name {
			set = set.intersect(more.complement()) // a character has one category
		}
	}
	return set
}

// A classParser reads the parts of a regular expression that denote a set of characters.
type classParser struct{ rest string }

// simpleEscapes are escapes of one character. Any other character that is no letter or digit stands for itself.
var simpleEscapes = map[byte]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b, '0': 0}

// escape reads an escape, and reports whether it is a set: \s, \d, \p{…} and their complements.
func (p *classParser) escape() (set runeSet, char rune, isSet bool, err error) {
	text := p.rest
	if len(text) < 2 {
		return nil, 0, false, fmt.Errorf("\\ at the end")
	}
	c := text[1]
	p.rest = text[2:]
	switch c {
	case 's', 'S':
		set = whiteSpace
	case 'd', 'D':
		set = decimals
	case 'p', 'P':
		name, rest := p.rest, ""
		if strings.HasPrefix(name, "{") {
			var ok bool
			if name, rest, ok = strings.Cut(name[1:], "}"); !ok {
				return nil, 0, false, fmt.Errorf("\\%c without }", c)
			}
		} else if name != "" {
			name, rest = name[:1], name[1:]
		}
		if set = property(name); set == nil {
			return nil, 0, false, fmt.Errorf("\\%c{%s} is not supported", c, name)
		}
		p.rest = rest
	case 'x', 'u':
		char, err = p.hexadecimal(c)
		return nil, char, false, err
	default:
		if r, ok := simpleEscapes[c]; ok {
			return nil, r, false, nil
		}
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c))) {
			return nil, 0, false, fmt.Errorf("\\%c is not supported", c)
		}
		r, size := utf8.DecodeRuneInString(text[1:])
		p.rest = text[1+size:]
		return nil, r, false, nil
	}
	if unicode.IsUpper(rune(c)) {
		set = set.complement()
	}
	return set, 0, true, nil
}

// hexadecimal reads \x41, \x{41} or \u0041 after its letter.
func (p *classParser) hexadecimal(letter byte) (rune, error) {
	digits := map[byte]int{'x': 2, 'u': 4}[letter]
	text, rest, ok := "", "", false
	if strings.HasPrefix(p.rest, "{") {
		text, rest, ok = strings.Cut(p.rest[1:], "}")
	} else if len(p.rest) >= digits {
		text, rest, ok = p.rest[:digits], p.rest[digits:], true
	}
	n, err := strconv.ParseUint(text, 16, 32)
	if !ok || err != nil || n > unicode.MaxRune {
		return 0, fmt.Errorf("\\%c is not followed by a hexadecimal number", letter)
	}
	p.rest = rest
	return rune(n), nil
}

// maxDepth is the maximum number of classes in one another, as of groups in package regexp/syntax. It bounds the stack.
const maxDepth = 1000

// class reads a class after its bracket, at a depth of 1 outside other classes. It may hold other classes, and
// intersections (&&).
func (p *classParser) class(depth int) (set runeSet, negated bool, err error) {
	if depth > maxDepth {
		return nil, false, fmt.Errorf("more than %d classes are in one another", maxDepth)
	}
	negated = strings.HasPrefix(p.rest, "^")
	p.rest = strings.TrimPrefix(p.rest, "^")
	var all runeSet // what && intersects
	var ranges []rune
	both := false
	for first := true; ; first = false {
		switch {
		case p.rest == "":
			return nil, false, fmt.Errorf("[ without ]")
		case p.rest[0] == ']' && !first:
			p.rest = p.rest[1:]
			set = newSet(ranges)
			if both {
				set = set.intersect(all)
			}
			return set, negated, nil
		case strings.HasPrefix(p.rest, "&&"):
			p.rest = p.rest[2:]
			set = newSet(ranges)
			if both {
				set = set.intersect(all)
			}
			all, ranges, both = set, nil, true
		case strings.HasPrefix(p.rest, "[:"):
			return nil, false, fmt.Errorf("a named class [: is not supported")
		case p.rest[0] == '[':
			p.rest = p.rest[1:]
			inner, not, err := p.class(depth + 1)
			if err != nil {
				return nil, false, err
			}
			if not {
				inner = inner.complement()
			}
			ranges = append(ranges, inner...)
		default:
			part, err := p.item()
			if err != nil {
				return nil, false, err
			}
			ranges = append(ranges, part...)
		}
	}
}

// item reads a character, a range of characters or an escape in a class.
func (p *classParser) item() ([]rune, error) {
	from, set, err := p.character()
	if err != nil || set != nil {
		return set, err
	}
	if len(p.rest) < 2 || p.rest[0] != '-' || p.rest[1] == ']' {
		return []rune{from, from}, nil
	}
	p.rest = p.rest[1:]
	to, set, err := p.character()
	switch {
	case err != nil:
		return nil, err
	case set != nil || to < from:
		return nil, fmt.Errorf("a range of a class ends before it begins")
	}
	return []rune{from, to}, nil
}

// character reads a character or a set in a class.
func (p *classParser) character() (rune, runeSet, error) {
	if p.rest[0] == '\\' {
		set, char, isSet, err := p.escape()
		if isSet && set == nil {
			set = runeSet{}
		}
		return char, set, err
	}
	r, size := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[size:]
	return r, nil, nil
}
