package jinja

import (
	"errors"
	"strings"
)

// A loop is the variable loop of a for block.
type loop struct {
	items   []any
	index   int // of the current item, from 0
	depth   int // of recursion, from 0
	changed any // arguments of the last call of changed, if any
	again   func(items any, depth int) (any, error)
}

// forBlock parses {% for target in values if test recursive %}…{% else %}…{% endfor %}.
func (p *parser) forBlock() statement {
	p.fors++
	defer func() { p.fors-- }()
	assign := p.target()
	if !p.takeName("in") {
		p.unexpected("in")
	}
	f := &forLoop{assign: assign, values: p.tuple(p.or)}
	if p.takeName("if") {
		f.test = p.condition()
	}
	recursive := p.takeName("recursive")
	p.endOf(endBlock)
	p.loops++
	var ending string
	f.body, ending = p.block("else", "endfor")
	p.loops--
	if ending == "else" {
		f.otherwise = p.body("endfor")
	} else {
		p.endOf(endBlock)
	}
	return func(s *scope, out *strings.Builder) error {
		values, err := f.values(s)
		if err != nil {
			return err
		}
		var again func(any, int) (any, error)
		if recursive {
			again = func(items any, depth int) (any, error) {
				var text strings.Builder
				err := f.run(s, items, &text, &loop{depth: depth, again: again})
				return text.String(), err
			}
		}
		return f.run(s, values, out, &loop{again: again})
	}
}

type forLoop struct {
	assign    target
	values    expression
	test      expression // nil: none
	body      statement
	otherwise statement // nil: none
}

func (f *forLoop) run(s *scope, values any, out *strings.Builder, l *loop) (err error) {
	if l.items, err = f.selected(s, values); err != nil {
		return err
	}
	completed := false // whether an iteration reached its end; continue and break do not count
	for i, v := range l.items {
		l.index = i
		inner := s.inner()
		inner.variables["loop"] = l
		if err := f.assign(inner, v); err != nil {
			return err
		}
		err := f.body(inner, out)
		if errors.Is(err, errBreak) {
			break
		}
		if err != nil && !errors.Is(err, errContinue) {
			return err
		}
		completed = completed || err == nil
	}
	if !completed && f.otherwise != nil {
		return f.otherwise(s.inner(), out)
	}
	return nil
}

// selected returns the values that pass the test.
func (f *forLoop) selected(s *scope, values any) ([]any, error) {
	all, err := iterate(values)
	if f.test == nil || err != nil {
		return all, err
	}
	var kept []any
	for _, v := range all {
		inner := s.inner()
		if err := f.assign(inner, v); err != nil {
			return nil, err
		}
		ok, err := f.test(inner)
		if err != nil {
			return nil, err
		}
		if truth(ok) {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// recurse renders the body of a recursive loop for other values.
func (l *loop) recurse(args []any) (any, error) {
	if l.again == nil || len(args) != 1 {
		return nil, errors.New("loop() wants the values of a loop that is recursive")
	}
	return l.again(args[0], l.depth+1)
}

// attribute returns an attribute of the loop.
func (l *loop) attribute(name string) any {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.index + 1)
	case "index0":
		return int64(l.index)
	case "revindex":
		return int64(n - l.index)
	case "revindex0":
		return int64(n - l.index - 1)
	case "first":
		return l.index == 0
	case "last":
		return l.index == n-1
	case "length":
		return int64(n)
	case "depth":
		return int64(l.depth + 1)
	case "depth0":
		return int64(l.depth)
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
		return &undefined{"the first iteration of a loop has no previous item"}
	case "nextitem":
		if l.index < n-1 {
			return l.items[l.index+1]
		}
		return &undefined{"the last iteration of a loop has no next item"}
	case "cycle":
		return &function{name: "cycle", call: func(args []any, _ *Dict) (any, error) {
			if len(args) == 0 {
				return nil, errors.New("loop.cycle has no values")
			}
			return args[l.index%len(args)], nil
		}}
	case "changed":
		return &function{name: "changed", call: func(args []any, _ *Dict) (any, error) {
			now := newTuple(args...)
			changed := l.changed == nil || !equal(l.changed, now)
			l.changed = now
			return changed, nil
		}}
	}
	return missing(l, name)
}
