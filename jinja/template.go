package jinja

import (
	"fmt"
	"strings"
	"time"
)

// A Template is a compiled template.
type Template struct{ body statement }

// Compile parses a template. Errors name the line.
func Compile(source string) (t *Template, err error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := recover(); e != nil {
			problem, ok := e.(syntaxError)
			if !ok {
				panic(e)
			}
			t, err = nil, fmt.Errorf("%s", problem.problem)
		}
	}()
	p := &parser{tokens: tokens, names: map[string]bool{}}
	body, _ := p.block()
	return &Template{body}, nil
}

// Render returns the text of a template. Variables are nil, bool, int64, float64, string, []any and
// *Dict.
func (t *Template) Render(variables map[string]any) (string, error) {
	s := &scope{globals(), nil}
	s = s.inner()
	for name, v := range variables {
		s.variables[name] = value(v)
	}
	var out strings.Builder
	err := t.body(s, &out)
	return out.String(), err
}

// value returns a variable as a value of templates.
func value(v any) any {
	items, ok := v.([]any)
	if !ok {
		return v
	}
	s := newList(make([]any, len(items)))
	for i, x := range items {
		s.items[i] = value(x)
	}
	return s
}

// globals are the variables of every template.
func globals() map[string]any {
	all := map[string]any{}
	for name, call := range map[string]func(args []any, kwargs *Dict) (any, error){
		"range": rangeOf, "dict": dictOf, "cycler": cycler, "joiner": joiner,
		"namespace": func(args []any, kwargs *Dict) (any, error) {
			d, err := dictOf(args, kwargs)
			if err != nil {
				return nil, err
			}
			return &namespace{d.(*Dict)}, nil
		},
		"raise_exception": func(args []any, _ *Dict) (any, error) {
			if len(args) != 1 {
				return nil, fmt.Errorf("raise_exception wants a message")
			}
			return nil, &raised{str(args[0])}
		},
		"strftime_now": func(args []any, _ *Dict) (any, error) {
			if len(args) != 1 {
				return nil, fmt.Errorf("strftime_now wants a format")
			}
			return strftime(time.Now(), str(args[0]))
		},
	} {
		all[name] = &function{name: name, call: call}
	}
	return all
}

func rangeOf(args []any, kwargs *Dict) (any, error) {
	bounds := []int64{0, 0, 1}
	for i, a := range args {
		n, ok := integer(a)
		if !ok || i == len(bounds) {
			return nil, fmt.Errorf("range wants one to three integers")
		}
		bounds[i] = n
	}
	switch {
	case len(args) == 0 || len(kwargs.keys) > 0:
		return nil, fmt.Errorf("range wants one to three integers")
	case len(args) == 1:
		bounds[0], bounds[1] = 0, bounds[0]
	}
	return newRange(bounds[0], bounds[1], bounds[2])
}

// rangeAttributes are the names of the bounds of a range.
var rangeAttributes = []string{"start", "stop", "step"}

func newRange(start, stop, step int64) (any, error) {
	const most = 100000 // Jinja's sandbox has this limit
	if step == 0 {
		return nil, fmt.Errorf("the step of a range is zero")
	}
	s := &sequence{kind: ranges, name: fmt.Sprintf("range(%d, %d)", start, stop), bounds: []any{start, stop, step}}
	if step != 1 {
		s.name = fmt.Sprintf("range(%d, %d, %d)", start, stop, step)
	}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if s.items = append(s.items, i); len(s.items) > most {
			return nil, fmt.Errorf("a range has more than %d elements", most)
		}
		after := i + step
		if (after > i) != (step > 0) {
			break // overflow
		}
		i = after
	}
	return s, nil
}

// dictOf copies a mapping or pairs, and adds named arguments.
func dictOf(args []any, kwargs *Dict) (any, error) {
	d := NewDict()
	if len(args) > 1 {
		return nil, fmt.Errorf("want one mapping, not %d values", len(args))
	}
	for _, a := range args {
		pairs, err := pairsOf(a)
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			if err := d.set(pair[0], pair[1]); err != nil {
				return nil, err
			}
		}
	}
	for i, k := range kwargs.keys {
		d.setString(k.(string), kwargs.values[i])
	}
	return d, nil
}

// pairsOf returns the items of a mapping, or of a sequence of pairs.
func pairsOf(v any) (pairs [][]any, err error) {
	items, err := iterate(v)
	if d, ok := v.(*Dict); ok {
		items = d.items()
	}
	for _, x := range items {
		pair, err := iterate(x)
		if err != nil || len(pair) != 2 {
			return nil, orError(err, "want pairs, not %d values", len(pair))
		}
		pairs = append(pairs, pair)
	}
	return pairs, err
}

// cycler returns an object whose next() goes through its values.
func cycler(args []any, _ *Dict) (any, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("cycler wants values")
	}
	d := NewDict("current", args[0])
	at := 0
	d.setString("next", &function{name: "next", call: func([]any, *Dict) (any, error) {
		now := args[at]
		at = (at + 1) % len(args)
		d.setString("current", args[at])
		return now, nil
	}})
	d.setString("reset", &function{name: "reset", call: func([]any, *Dict) (any, error) {
		at = 0
		d.setString("current", args[at])
		return nil, nil
	}})
	return &namespace{d}, nil
}

// joiner returns a function whose first result is empty, and further ones a separator.
func joiner(args []any, _ *Dict) (any, error) {
	separator := ", "
	if len(args) > 0 {
		separator = str(args[0])
	}
	used := false
	return &function{name: "joiner", call: func([]any, *Dict) (any, error) {
		if !used {
			used = true
			return "", nil
		}
		return separator, nil
	}}, nil
}

// directives are those of Python's strftime, as layouts of package time.
var directives = map[string]string{
	"a": "Mon", "A": "Monday", "b": "Jan", "B": "January", "d": "02", "-d": "2", "e": "_2", "H": "15", "I": "03", "-I": "3",
	"m": "01", "-m": "1", "M": "04", "-M": "4", "S": "05", "-S": "5", "p": "PM", "y": "06", "Y": "2006", "Z": "MST", "z": "-0700",
	"j": "002", "F": "2006-01-02", "T": "15:04:05", "D": "01/02/06", "R": "15:04", "h": "Jan",
	"c": "Mon Jan _2 15:04:05 2006", "x": "01/02/06", "X": "15:04:05",
}

// strftime formats a time. Directives without a layout are an error.
func strftime(t time.Time, format string) (any, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(format, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		n := 1
		if strings.HasPrefix(rest, "-") {
			n = 2
		}
		directive := rest[:min(n, len(rest))]
		layout, ok := directives[directive]
		switch {
		case directive == "%":
			out.WriteByte('%')
		case directive == "f":
			fmt.Fprintf(&out, "%06d", t.Nanosecond()/1000)
		case ok:
			out.WriteString(t.Format(layout))
		default:
			return nil, fmt.Errorf("strftime_now: unsupported directive %%%s", directive)
		}
		format = rest[len(directive):]
	}
}
