package jinja

import (
	"errors"
	"fmt"
	"strings"
)

// A statement writes text.
type statement func(*scope, *strings.Builder) error

// A scope holds the variables of a block. Inner scopes see those of outer ones, but set their own.
type scope struct {
	variables map[string]any
	outer     *scope
}

func (s *scope) inner() *scope { return &scope{map[string]any{}, s} }

func (s *scope) get(name string) any {
	for at := s; at != nil; at = at.outer {
		if v, ok := at.variables[name]; ok {
			return v
		}
	}
	return &undefined{fmt.Sprintf("%q is undefined", name)}
}

var (
	errBreak    = errors.New("break outside of a loop")
	errContinue = errors.New("continue outside of a loop")
)

// block parses statements up to a tag that begins with one of the given words, and returns the word.
// Without words, it parses to the end of the template.
func (p *parser) block(ends ...string) (body statement, ending string) {
	var all []statement
	for {
		switch t := p.next(); t.kind {
		case end:
			if len(ends) > 0 {
				p.fail("{%% %s %%} is missing", ends[len(ends)-1])
			}
			return sequenceOf(all), ""
		case text:
			all = append(all, func(_ *scope, out *strings.Builder) error { out.WriteString(t.text); return nil })
		case beginPrint:
			value := p.tuple(p.condition)
			p.endOf(endPrint)
			all = append(all, at(t.line, func(s *scope, out *strings.Builder) error {
				v, err := value(s)
				if err == nil {
					out.WriteString(str(v))
				}
				return err
			}))
		case beginBlock:
			word := p.expectName()
			for _, e := range ends {
				if e == word {
					return sequenceOf(all), word
				}
			}
			parse, ok := p.tags()[word]
			if !ok {
				p.fail("unknown tag {%% %s %%}", word)
			}
			all = append(all, at(t.line, parse()))
		}
	}
}

// endOf reads the end of a tag.
func (p *parser) endOf(k tokenKind) {
	if p.peek().kind != k {
		p.unexpected("the end of the tag")
	}
	p.pos++
}

// body parses statements up to the tag {% ending %}, and that tag.
func (p *parser) body(ending string) statement {
	p.endOf(endBlock)
	b, _ := p.block(ending)
	p.endOf(endBlock)
	return b
}

func sequenceOf(all []statement) statement {
	return func(s *scope, out *strings.Builder) error {
		for _, st := range all {
			if err := st(s, out); err != nil {
				return err
			}
		}
		return nil
	}
}

// A located error has the line of its statement.
type located struct{ error }

// A raised error is the message of raise_exception, which needs no line.
type raised struct{ message string }

func (r *raised) Error() string { return r.message }

// at adds a line to the errors of a statement.
func at(line int, st statement) statement {
	return func(s *scope, out *strings.Builder) error {
		err := st(s, out)
		switch err.(type) {
		case nil, located, *raised:
			return err
		}
		if err == errBreak || err == errContinue {
			return err
		}
		return located{fmt.Errorf("line %d: %w", line, err)}
	}
}

// tags are the parsers of statements.
func (p *parser) tags() map[string]func() statement {
	return map[string]func() statement{
		"if": p.ifBlock, "for": p.forBlock, "set": p.setBlock, "with": p.withBlock, "filter": p.filterBlock,
		"macro": p.macroBlock, "call": p.callBlock,
		"break":      func() statement { return p.jump(errBreak) },
		"continue":   func() statement { return p.jump(errContinue) },
		"generation": func() statement { return p.body("endgeneration") },
	}
}

// jump parses {% break %} and {% continue %}.
func (p *parser) jump(err error) statement {
	if p.loops == 0 {
		p.fail("%v", err)
	}
	p.endOf(endBlock)
	return func(*scope, *strings.Builder) error { return err }
}

func (p *parser) ifBlock() statement {
	type branch struct {
		test expression
		body statement
	}
	var branches []branch
	for word := "if"; word != "endif"; {
		test := constant(true)
		if word != "else" {
			test = p.tuple(p.condition)
		}
		ends := []string{"elif", "else", "endif"}
		if word == "else" {
			ends = ends[2:]
		}
		p.endOf(endBlock)
		var body statement
		body, word = p.block(ends...)
		branches = append(branches, branch{test, body})
	}
	p.endOf(endBlock)
	return func(s *scope, out *strings.Builder) error {
		for _, b := range branches {
			v, err := b.test(s)
			if err != nil {
				return err
			}
			if truth(v) {
				return b.body(s, out)
			}
		}
		return nil
	}
}

// A target receives a value.
type target func(*scope, any) error

// target parses one name, or several with commas, in parentheses or not.
func (p *parser) target() target {
	var all []target
	comma := false
	for {
		if p.take("(") {
			all = append(all, p.target())
			p.expect(")")
		} else {
			word := p.assignable()
			if word == "loop" && p.fors > 0 {
				p.fail("loop cannot be assigned in a loop")
			}
			all = append(all, func(s *scope, v any) error { s.variables[word] = v; return nil })
		}
		if !p.take(",") {
			break
		}
		if comma = true; p.is(operator, ")") {
			break
		}
	}
	if !comma {
		return all[0]
	}
	return func(s *scope, v any) error {
		items, err := iterate(v)
		if err != nil {
			return err
		}
		if len(items) != len(all) {
			return fmt.Errorf("%d values for %d names", len(items), len(all))
		}
		for i, t := range all {
			if err := t(s, items[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// assignable reads a name that is not that of a constant.
func (p *parser) assignable() string {
	if _, ok := constants[p.peek().text]; ok {
		p.unexpected("a name that can be assigned")
	}
	return p.expectName()
}

// setBlock parses {% set target = value %} and {% set name %}…{% endset %}.
func (p *parser) setBlock() statement {
	var assign target
	if t := p.tokens[p.pos+1]; p.peek().kind == name && t.kind == operator && t.text == "." {
		object := p.next().text
		p.pos++
		field := p.expectName()
		assign = func(s *scope, v any) error {
			n, ok := s.get(object).(*namespace)
			if !ok {
				return fmt.Errorf("%s is no namespace, so %s.%s cannot be set", object, object, field)
			}
			return n.attributes.set(field, v)
		}
	} else {
		assign = p.target()
	}
	if p.take("=") {
		value := p.tuple(p.condition)
		p.endOf(endBlock)
		return func(s *scope, _ *strings.Builder) error {
			v, err := value(s)
			if err != nil {
				return err
			}
			return assign(s, v)
		}
	}
	value := p.captured()
	body := p.body("endset")
	return func(s *scope, _ *strings.Builder) error {
		v, err := capture(s, body, value)
		if err != nil {
			return err
		}
		return assign(s, v)
	}
}

// written is the name of the variable that passes the text of a block to its filters. No variable of
// a template has this name.
const written = ""

func writtenText(s *scope) (any, error) { return s.variables[written], nil }

// captured parses the filters after {% set name %} and returns what they compute from the text of the
// block.
func (p *parser) captured() expression { return p.filters(writtenText) }

// capture runs a body in an inner scope and passes its text through filters, which see the variables
// of the body.
func capture(s *scope, body statement, value expression) (any, error) {
	var out strings.Builder
	inner := s.inner()
	if err := body(inner, &out); err != nil {
		return nil, err
	}
	inner.variables[written] = out.String()
	return value(inner)
}

func (p *parser) filterBlock() statement {
	value := p.filters(p.filter(writtenText))
	body := p.body("endfilter")
	return func(s *scope, out *strings.Builder) error {
		v, err := capture(s, body, value)
		if err == nil {
			out.WriteString(str(v))
		}
		return err
	}
}

func (p *parser) withBlock() statement {
	var targets []target
	var values []expression
	for p.peek().kind != endBlock {
		if len(targets) > 0 {
			p.expect(",")
		}
		word := p.assignable()
		targets = append(targets, func(s *scope, v any) error { s.variables[word] = v; return nil })
		p.expect("=")
		values = append(values, p.condition())
	}
	body := p.body("endwith")
	return func(s *scope, out *strings.Builder) error {
		given, err := evaluate(s, values)
		if err != nil {
			return err
		}
		inner := s.inner()
		for i, v := range given {
			_ = targets[i](inner, v) // one name each
		}
		return body(inner, out)
	}
}
