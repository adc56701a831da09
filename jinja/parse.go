package jinja

import (
	"fmt"
	"math"
	"strconv"
)

// An expression computes a value.
type expression func(*scope) (any, error)

// A parser compiles tokens to closures.
type parser struct {
	tokens []token
	pos    int
	names  map[string]bool // that the current macro uses
	loops  int             // whose bodies the current tag is in, inside the current macro
	fors   int             // tags {% for %} that are open
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != end {
		p.pos++
	}
	return t
}

// is reports whether the next token is an operator or a name with this text.
func (p *parser) is(k tokenKind, text string) bool {
	t := p.peek()
	return t.kind == k && t.text == text
}

// take reads the next token if it is this operator.
func (p *parser) take(op string) bool { return p.takeKind(operator, op) }

// takeName reads the next token if it is this name.
func (p *parser) takeName(word string) bool { return p.takeKind(name, word) }

func (p *parser) takeKind(k tokenKind, text string) bool {
	if !p.is(k, text) {
		return false
	}
	p.pos++
	return true
}

// A syntaxError ends parsing. It is a panic, which Compile recovers.
type syntaxError struct{ problem string }

func (p *parser) fail(format string, args ...any) {
	panic(syntaxError{fmt.Sprintf("line %d: %s", p.peek().line, fmt.Sprintf(format, args...))})
}

// unexpected fails because of the next token.
func (p *parser) unexpected(want string) {
	got := p.peek().text
	switch p.peek().kind {
	case end:
		got = "the end of the template"
	case endPrint, endBlock:
		got = "the end of the tag"
	}
	p.fail("got %s, want %s", got, want)
}

func (p *parser) expect(op string) {
	if !p.take(op) {
		p.unexpected(op)
	}
}

func (p *parser) expectName() string {
	if p.peek().kind != name {
		p.unexpected("a name")
	}
	return p.next().text
}

// condition parses a if b else c.
func (p *parser) condition() expression {
	value := p.or()
	for p.takeName("if") {
		yes, test := value, p.or()
		no := constant(&undefined{"an if expression without else is false, so it has no value"})
		if p.takeName("else") {
			no = p.condition()
		}
		value = func(s *scope) (any, error) {
			t, err := test(s)
			switch {
			case err != nil:
				return nil, err
			case truth(t):
				return yes(s)
			}
			return no(s)
		}
	}
	return value
}

func constant(v any) expression { return func(*scope) (any, error) { return v, nil } }

func (p *parser) or() expression {
	return p.shortCircuit("or", true, func() expression { return p.shortCircuit("and", false, p.not) })
}

// shortCircuit parses a chain of and, or of or. The result is the first operand whose truth value is
// decides, else the last.
func (p *parser) shortCircuit(word string, decides bool, operand func() expression) expression {
	left := operand()
	for p.takeName(word) {
		a, b := left, operand()
		left = func(s *scope) (any, error) {
			v, err := a(s)
			if err != nil || truth(v) == decides {
				return v, err
			}
			return b(s)
		}
	}
	return left
}

func (p *parser) not() expression {
	if p.is(name, "not") {
		p.pos++
		operand := p.not()
		return func(s *scope) (any, error) {
			v, err := operand(s)
			return !truth(v), err
		}
	}
	return p.comparison()
}

// comparison parses a chain of comparisons: a < b < c is a < b and b < c.
func (p *parser) comparison() expression {
	type link struct {
		compare func(a, b any) (bool, error)
		operand expression
	}
	first := p.binary(0)
	var links []link
	for {
		c, ok := comparisons[p.peek().text]
		switch t := p.peek(); {
		case t.kind == operator && ok:
			p.pos++
		case t.kind == name && t.text == "in":
			p.pos++
			c = func(a, b any) (bool, error) { return contains(b, a) }
		case t.kind == name && t.text == "not" && p.tokens[p.pos+1].kind == name && p.tokens[p.pos+1].text == "in":
			p.pos += 2
			c = func(a, b any) (bool, error) { in, err := contains(b, a); return !in, err }
		default:
			if links == nil {
				return first
			}
			return func(s *scope) (any, error) {
				a, err := first(s)
				for _, l := range links {
					if err != nil {
						return nil, err
					}
					b, err := l.operand(s)
					if err != nil {
						return nil, err
					}
					if ok, err := l.compare(a, b); !ok || err != nil {
						return false, err
					}
					a = b
				}
				return true, err
			}
		}
		links = append(links, link{c, p.binary(0)})
	}
}

// levels are the binary operators, of the lowest precedence first.
var levels = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

// binary parses operators of a level and above. All are left-associative.
func (p *parser) binary(level int) expression {
	if level == len(levels) {
		return p.unary(true)
	}
	left := p.binary(level + 1)
	for {
		op := ""
		for _, o := range levels[level] {
			if p.take(o) {
				op = o
				break
			}
		}
		if op == "" {
			return left
		}
		a, b := left, p.binary(level+1)
		left = func(s *scope) (any, error) {
			x, err := a(s)
			if err != nil {
				return nil, err
			}
			y, err := b(s)
			if err != nil {
				return nil, err
			}
			return arithmetic(op, x, y)
		}
	}
}

// unary parses signs, and a value with what follows it.
func (p *parser) unary(filters bool) expression {
	var value expression
	switch {
	case p.take("-"):
		if p.peek().text == "9223372036854775808" { // its negative is in range
			p.pos++
			value = constant(int64(math.MinInt64))
			break
		}
		value = signed(p.unary(false), negated)
	case p.take("+"):
		value = signed(p.unary(false), positive)
	default:
		value = p.postfix(p.primary())
	}
	if filters {
		value = p.filters(value)
	}
	return value
}

// signed returns the operand with a sign.
func signed(operand expression, sign func(v any) (any, error)) expression {
	return func(s *scope) (any, error) {
		v, err := operand(s)
		if err != nil {
			return nil, err
		}
		return sign(v)
	}
}

func (p *parser) primary() expression {
	switch t := p.next(); t.kind {
	case name:
		return p.name(t.text)
	case quoted:
		value := t.text
		for p.peek().kind == quoted {
			value += p.next().text
		}
		return constant(value)
	case number10:
		v, err := strconv.ParseInt(t.text, base(t.text), 64)
		if err != nil {
			p.fail("%s: want an integer below 2^63", t.text)
		}
		return constant(v)
	case decimal:
		v, _ := strconv.ParseFloat(t.text, 64) // out of range: infinite, as in Python
		return constant(v)
	case operator:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			items := p.list("]")
			return func(s *scope) (any, error) {
				v, err := evaluate(s, items)
				return newList(v), err
			}
		case "{":
			return p.dict()
		}
	}
	p.pos--
	p.unexpected("an expression")
	return nil
}

// base returns the base of the digits of an integer, as strconv.ParseInt takes it.
func base(digits string) int {
	if len(digits) > 1 && digits[0] == '0' && digits[1] > '9' {
		return 0
	}
	return 10
}

// constants are the names that cannot be assigned.
var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) name(word string) expression {
	if v, ok := constants[word]; ok {
		return constant(v)
	}
	p.names[word] = true
	return func(s *scope) (any, error) { return s.get(word), nil }
}

// parenthesis parses an expression or a tuple after its bracket.
func (p *parser) parenthesis() expression {
	if p.take(")") {
		return constant(newTuple())
	}
	value := p.tuple(p.condition)
	p.expect(")")
	return value
}

// tuple parses an expression, or several with commas.
func (p *parser) tuple(element func() expression) expression {
	items := []expression{element()}
	comma := false
	for p.take(",") {
		comma = true
		if t := p.peek(); t.kind == endPrint || t.kind == endBlock || t.kind == operator && t.text == ")" {
			break
		}
		items = append(items, element())
	}
	if !comma {
		return items[0]
	}
	return func(s *scope) (any, error) {
		v, err := evaluate(s, items)
		return newTuple(v...), err
	}
}

// list parses expressions up to a bracket.
func (p *parser) list(closing string) (items []expression) {
	for !p.take(closing) {
		if len(items) > 0 {
			p.expect(",")
			if p.take(closing) {
				break
			}
		}
		items = append(items, p.condition())
	}
	return items
}

func evaluate(s *scope, expressions []expression) ([]any, error) {
	values := make([]any, len(expressions))
	for i, e := range expressions {
		v, err := e(s)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

// dict parses a mapping after its bracket.
func (p *parser) dict() expression {
	var keys, values []expression
	for !p.take("}") {
		if len(keys) > 0 {
			p.expect(",")
			if p.take("}") {
				break
			}
		}
		keys = append(keys, p.condition())
		p.expect(":")
		values = append(values, p.condition())
	}
	return func(s *scope) (any, error) {
		d := NewDict()
		for i := range keys {
			pair, err := evaluate(s, []expression{keys[i], values[i]})
			if err != nil {
				return nil, err
			}
			if err := d.set(pair[0], pair[1]); err != nil {
				return nil, err
			}
		}
		return d, nil
	}
}
