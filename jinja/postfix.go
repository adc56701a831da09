package jinja

import (
	"fmt"
	"slices"
	"strconv"
)

// postfix parses attributes, subscripts and calls after a value.
func (p *parser) postfix(value expression) expression {
	for {
		switch {
		case p.take("."):
			value = p.attribute(value)
		case p.take("["):
			value = p.subscript(value)
		case p.is(operator, "("):
			value = p.call(value)
		default:
			return value
		}
	}
}

func (p *parser) attribute(value expression) expression {
	t := p.next()
	if t.kind == number10 {
		i, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.fail("%s: want an integer", t.text)
		}
		return func(s *scope) (any, error) {
			v, err := value(s)
			if err != nil {
				return nil, err
			}
			return item(v, i)
		}
	}
	if t.kind != name {
		p.pos--
		p.unexpected("the name of an attribute")
	}
	return func(s *scope) (any, error) {
		v, err := value(s)
		if err != nil {
			return nil, err
		}
		return attribute(v, t.text)
	}
}

// subscript parses an index or a slice after its bracket.
func (p *parser) subscript(value expression) expression {
	var bounds [3]expression // start, stop, step; nil: none
	slice := false
	for i := 0; !p.is(operator, "]"); {
		if p.take(":") {
			slice = true
			if i++; i == len(bounds) {
				p.fail("a slice has at most start, stop and step")
			}
			continue
		}
		if bounds[i] != nil {
			p.unexpected("]")
		}
		bounds[i] = p.tuple(p.condition)
	}
	if !slice && bounds[0] == nil {
		p.unexpected("an index")
	}
	p.expect("]")
	return func(s *scope) (any, error) {
		v, err := value(s)
		if err != nil {
			return nil, err
		}
		var at [3]any
		for i, b := range bounds {
			if b == nil {
				continue
			}
			if at[i], err = b(s); err != nil {
				return nil, err
			}
		}
		if slice {
			return sliced(v, at)
		}
		return item(v, at[0])
	}
}

// arguments are those of a call. Spread ones are lists and mappings to expand.
type arguments struct {
	positional []expression
	names      []string
	values     []expression
	spread     expression // *list
	spreadDict expression // **dict
}

// arguments parses arguments between parentheses.
func (p *parser) arguments() (a arguments) {
	p.expect("(")
	for first := true; !p.take(")"); first = false {
		if !first {
			p.expect(",")
			if p.take(")") {
				break
			}
		}
		switch t := p.peek(); {
		case a.spreadDict != nil:
			p.fail("an argument follows **")
		case p.take("**"):
			a.spreadDict = p.condition()
		case t.kind == name && p.tokens[p.pos+1].kind == operator && p.tokens[p.pos+1].text == "=":
			if slices.Contains(a.names, t.text) {
				p.fail("two arguments are %s", t.text)
			}
			p.pos += 2
			a.names, a.values = append(a.names, t.text), append(a.values, p.condition())
		case a.spread != nil:
			p.fail("a positional argument follows *")
		case p.take("*"):
			a.spread = p.condition()
		case len(a.names) > 0:
			p.fail("a positional argument follows a named one")
		default:
			a.positional = append(a.positional, p.condition())
		}
	}
	return a
}

func (a *arguments) evaluate(s *scope) (args []any, kwargs *Dict, err error) {
	if args, err = evaluate(s, a.positional); err != nil {
		return nil, nil, err
	}
	if a.spread != nil {
		v, err := a.spread(s)
		if err != nil {
			return nil, nil, err
		}
		items, err := iterate(v)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, items...)
	}
	kwargs = NewDict()
	values, err := evaluate(s, a.values)
	for i, v := range values {
		kwargs.setString(a.names[i], v)
	}
	if a.spreadDict == nil || err != nil {
		return args, kwargs, err
	}
	v, err := a.spreadDict(s)
	d, ok := v.(*Dict)
	if !ok || err != nil {
		return nil, nil, orError(err, "** wants a mapping, not a value of type %s", typeName(v))
	}
	for i, k := range d.keys {
		word, ok := k.(string)
		if _, given, _ := kwargs.get(k); !ok || given {
			return nil, nil, fmt.Errorf("** has the key %s, want names of further arguments", repr(k))
		}
		kwargs.setString(word, d.values[i])
	}
	return args, kwargs, nil
}

// orError returns err, or a new error if it is nil.
func orError(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, args...)
}

func (p *parser) call(value expression) expression {
	a := p.arguments()
	return func(s *scope) (any, error) {
		f, err := value(s)
		if err != nil {
			return nil, err
		}
		args, kwargs, err := a.evaluate(s)
		if err != nil {
			return nil, err
		}
		return call(f, args, kwargs)
	}
}

// call calls a value.
func call(f any, args []any, kwargs *Dict) (any, error) {
	switch f := f.(type) {
	case *function:
		return f.call(args, kwargs)
	case *undefined:
		return nil, f.err()
	case *loop:
		return f.recurse(args)
	}
	return nil, fmt.Errorf("a value of type %s cannot be called", typeName(f))
}

// filters parses filters, tests and calls after a value.
func (p *parser) filters(value expression) expression {
	for {
		switch {
		case p.take("|"):
			value = p.filter(value)
		case p.takeName("is"):
			value = p.test(value)
		case p.is(operator, "("):
			value = p.call(value)
		default:
			return value
		}
	}
}

// filter parses the name and arguments of a filter.
func (p *parser) filter(value expression) expression {
	word := p.expectName()
	var a arguments
	if p.is(operator, "(") {
		a = p.arguments()
	}
	return func(s *scope) (any, error) {
		v, err := value(s)
		if err != nil {
			return nil, err
		}
		args, kwargs, err := a.evaluate(s)
		if err != nil {
			return nil, err
		}
		return applyFilter(word, v, args, kwargs)
	}
}

// test parses the name and argument of a test.
func (p *parser) test(value expression) expression {
	negated := p.takeName("not")
	word := p.expectName()
	var a arguments
	switch t := p.peek(); {
	case p.is(operator, "("):
		a = p.arguments()
	case t.kind == name && t.text == "is":
		p.fail("tests cannot be chained with is")
	case t.kind == name && t.text != "else" && t.text != "or" && t.text != "and", // an error in Jinja2, too: x is none if y
		t.kind == quoted, t.kind == number10, t.kind == decimal,
		t.kind == operator && (t.text == "[" || t.text == "{"):
		a.positional = []expression{p.postfix(p.primary())}
	}
	return func(s *scope) (any, error) {
		v, err := value(s)
		if err != nil {
			return nil, err
		}
		args, kwargs, err := a.evaluate(s)
		if err != nil {
			return nil, err
		}
		ok, err := applyTest(word, v, args, kwargs)
		return ok != negated, err
	}
}
