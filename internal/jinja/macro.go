package jinja

import (
	"fmt"
	"strings"
)

// A macro is a function whose result is the text of its body.
type macro struct {
	name     string
	params   []string
	defaults []expression // of params; nil: undefined
	body     statement

	varargs, kwargs, caller bool // whether the body uses these names
}

// macroBlock parses {% macro name(params) %}…{% endmacro %}.
func (p *parser) macroBlock() statement {
	m := &macro{name: p.expectName()}
	p.macro(m, "endmacro")
	return func(s *scope, _ *strings.Builder) error {
		s.variables[m.name] = m.bind(s)
		return nil
	}
}

// callBlock parses {% call(params) macro(…) %}…{% endcall %}.
func (p *parser) callBlock() statement {
	m := &macro{name: "caller"}
	if p.is(operator, "(") {
		p.params(m)
	}
	callee := p.primary()
	for p.take(".") {
		callee = p.attribute(callee)
	}
	a := p.arguments()
	p.macroBody(m, "endcall")
	return func(s *scope, out *strings.Builder) error {
		f, err := callee(s)
		if err != nil {
			return err
		}
		args, kwargs, err := a.evaluate(s)
		if err != nil {
			return err
		}
		kwargs.setString("caller", m.bind(s))
		v, err := call(f, args, kwargs)
		if err != nil {
			return err
		}
		out.WriteString(str(v))
		return nil
	}
}

// macro parses the parameters and the body of a macro.
func (p *parser) macro(m *macro, ending string) {
	p.params(m)
	p.macroBody(m, ending)
}

func (p *parser) params(m *macro) {
	p.expect("(")
	for !p.take(")") {
		if len(m.params) > 0 {
			p.expect(",")
		}
		m.params = append(m.params, p.expectName())
		var value expression
		if p.take("=") {
			value = p.condition()
		} else if n := len(m.defaults); n > 0 && m.defaults[n-1] != nil {
			p.fail("a parameter without default follows one with default")
		}
		m.defaults = append(m.defaults, value)
	}
}

// macroBody parses the body, and notes which special names it uses.
func (p *parser) macroBody(m *macro, ending string) {
	names, loops := p.names, p.loops
	p.names, p.loops = map[string]bool{}, 0
	m.body = p.body(ending)
	m.varargs, m.kwargs, m.caller = p.names["varargs"], p.names["kwargs"], p.names["caller"]
	for n := range p.names {
		names[n] = true
	}
	p.names, p.loops = names, loops
}

// bind returns the macro as a function of the variables that surround its definition.
func (m *macro) bind(outer *scope) *function {
	return &function{m.name, func(args []any, kwargs *Dict) (any, error) {
		s := outer.inner()
		if err := m.pass(s, args, kwargs); err != nil {
			return nil, err
		}
		var out strings.Builder
		err := m.body(s, &out)
		return out.String(), err
	}}
}

// pass sets the parameters of a call.
func (m *macro) pass(s *scope, args []any, kwargs *Dict) error {
	rest := NewDict()
	named := map[string]any{}
	for i, k := range kwargs.keys {
		named[k.(string)] = kwargs.values[i]
	}
	for i, param := range m.params {
		v, given := named[param]
		delete(named, param)
		switch {
		case i < len(args) && given:
			return fmt.Errorf("macro %s gets %s twice", m.name, param)
		case i < len(args):
			v = args[i]
		case given:
		case m.defaults[i] != nil:
			var err error
			if v, err = m.defaults[i](s); err != nil {
				return err
			}
		default:
			v = &undefined{fmt.Sprintf("parameter %q of macro %s was not given", param, m.name)}
		}
		s.variables[param] = v
	}
	if m.caller {
		s.variables["caller"] = &undefined{fmt.Sprintf("macro %s was not called by a call block", m.name)}
		if v, ok := named["caller"]; ok {
			s.variables["caller"] = v
			delete(named, "caller")
		}
	}
	for _, k := range kwargs.keys {
		if v, ok := named[k.(string)]; ok {
			rest.setString(k.(string), v)
		}
	}
	surplus := args[min(len(m.params), len(args)):]
	switch {
	case m.varargs:
		s.variables["varargs"] = newTuple(surplus...)
	case len(surplus) > 0:
		return fmt.Errorf("macro %s has %d parameters, not %d", m.name, len(m.params), len(args))
	}
	switch {
	case m.kwargs:
		s.variables["kwargs"] = rest
	case len(rest.keys) > 0:
		return fmt.Errorf("macro %s has no parameter %s", m.name, rest.keys[0])
	}
	return nil
}
