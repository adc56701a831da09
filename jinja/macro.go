package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// A macro is a function whose result is the text of its body.
type macro struct {
	name     string // empty: of a call block
	params   []string
	defaults []expression // of params; nil: undefined
	body     statement

	varargs, kwargs, caller bool // whether the body uses these names
}

// String returns the macro as errors call it.
func (m *macro) String() string {
	if m.name == "" {
		return "the call block"
	}
	return "macro " + m.name
}

// macroBlock parses {% macro name(params) %}…{% endmacro %}.
func (p *parser) macroBlock() statement {
	m := &macro{name: p.assignable()}
	p.macro(m, "endmacro")
	return func(s *scope, _ *strings.Builder) error {
		s.variables[m.name] = m.bind(s)
		return nil
	}
}

// callBlock parses {% call(params) macro(…) %}…{% endcall %}.
func (p *parser) callBlock() statement {
	m := &macro{}
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
		if slices.Contains(m.params, p.peek().text) {
			p.fail("two parameters are %s", p.peek().text)
		}
		m.params = append(m.params, p.assignable())
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
	at := slices.Index(m.params, "caller")
	m.varargs = p.names["varargs"] && !slices.Contains(m.params, "varargs")
	m.kwargs = p.names["kwargs"] && !slices.Contains(m.params, "kwargs")
	m.caller = p.names["caller"] && at < 0
	if p.names["caller"] && at >= 0 && m.defaults[at] == nil {
		p.fail("the parameter caller has no default")
	}
	for n := range p.names {
		names[n] = true
	}
	p.names, p.loops = names, loops
}

// bind returns the macro as a function of the variables that surround its definition.
func (m *macro) bind(outer *scope) *function {
	attributes := map[string]any{
		"name": m.name, "arguments": newTuple(anys(m.params)...), "catch_varargs": m.varargs, "catch_kwargs": m.kwargs, "caller": m.caller,
	}
	if m.name == "" {
		attributes["name"] = nil
	}
	return &function{attributes: attributes, name: m.name, call: func(args []any, kwargs *Dict) (any, error) {
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
	var defaults []int
	named := map[string]any{}
	for i, k := range kwargs.keys {
		named[k.(string)] = kwargs.values[i]
	}
	for i, param := range m.params {
		v, given := named[param]
		delete(named, param)
		switch {
		case i < len(args) && given:
			return fmt.Errorf("%s gets %s twice", m, param)
		case i < len(args):
			v = args[i]
		case !given:
			v = &undefined{fmt.Sprintf("parameter %q of %s was not given", param, m)}
		}
		if s.variables[param] = v; i >= len(args) && !given && m.defaults[i] != nil {
			defaults = append(defaults, i)
		}
	}
	for _, i := range defaults { // which see all parameters
		v, err := m.defaults[i](s)
		if err != nil {
			return err
		}
		s.variables[m.params[i]] = v
	}
	if m.caller {
		s.variables["caller"] = &undefined{fmt.Sprintf("%s was not called by a call block", m)}
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
		return fmt.Errorf("%s has %d parameters, not %d", m, len(m.params), len(args))
	}
	switch {
	case m.kwargs:
		s.variables["kwargs"] = rest
	case len(rest.keys) > 0:
		return fmt.Errorf("%s has no parameter %s", m, rest.keys[0])
	}
	return nil
}
