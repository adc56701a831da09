package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
)

// A jsonWriter writes as Python's json.dumps.
type jsonWriter struct {
	out         strings.Builder
	ascii, sort bool
	indent      string // of a level; with lines, one item a line
	lines       bool
	item, key   string // separators
}

func toJSON(v any, g given) (any, error) {
	w := &jsonWriter{ascii: g.is(0), sort: g.is(3), item: ", ", key: ": "}
	switch by := g.or(1, nil).(type) {
	case nil:
	case string:
		w.indent, w.lines = by, true
	default:
		n, err := g.integer(1, 0)
		if err != nil {
			return nil, err
		}
		w.indent, w.lines = strings.Repeat(" ", int(max(n, 0))), true
	}
	if w.lines {
		w.item = ","
	}
	if s := g.or(2, nil); s != nil {
		pair, err := iterate(s)
		if err != nil || len(pair) != 2 {
			return nil, orError(err, "separators has %d values, want 2", len(pair))
		}
		w.item, w.key = str(pair[0]), str(pair[1])
	}
	err := w.write(v, 0)
	return w.out.String(), err
}

func (w *jsonWriter) write(v any, depth int) error {
	switch v := v.(type) {
	case nil:
		w.out.WriteString("null")
	case bool, int64:
		w.out.WriteString(strings.ToLower(repr(v)))
	case float64:
		switch {
		case math.IsNaN(v):
			w.out.WriteString("NaN")
		case math.IsInf(v, 0):
			w.out.WriteString(strings.Replace(floatText(v), "inf", "Infinity", 1))
		default:
			w.out.WriteString(floatText(v))
		}
	case string:
		w.text(v)
	case *Dict:
		return w.dict(v, depth)
	case *sequence:
		if v.kind > tuple {
			return fmt.Errorf("a value of type %s is not JSON serializable", typeName(v))
		}
		return w.all("[", "]", len(v.items), depth, func(i int) error { return w.write(v.items[i], depth+1) })
	default:
		return fmt.Errorf("a value of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

// all writes n items between brackets.
func (w *jsonWriter) all(begin, end string, n, depth int, write func(i int) error) error {
	w.out.WriteString(begin)
	for i := range n {
		if i > 0 {
			w.out.WriteString(w.item)
		}
		w.line(depth + 1)
		if err := write(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.line(depth)
	}
	w.out.WriteString(end)
	return nil
}

// line begins a line, if items have lines.
func (w *jsonWriter) line(depth int) {
	if w.lines {
		w.out.WriteString("\n" + strings.Repeat(w.indent, depth))
	}
}

func (w *jsonWriter) dict(d *Dict, depth int) error {
	pairs := d.items()
	if w.sort {
		var err error
		if pairs, err = sortBy(pairs, func(v any) (any, error) { return item(v, int64(0)) }, false); err != nil {
			return err
		}
	}
	return w.all("{", "}", len(pairs), depth, func(i int) error {
		pair := pairs[i].(*sequence).items
		switch key := pair[0].(type) {
		case string:
			w.text(key)
		case nil, bool, int64, float64:
			w.out.WriteByte('"')
			if err := w.write(key, depth); err != nil {
				return err
			}
			w.out.WriteByte('"')
		default:
			return fmt.Errorf("a key of type %s is not JSON serializable", typeName(key))
		}
		w.out.WriteString(w.key)
		return w.write(pair[1], depth+1)
	})
}

func (w *jsonWriter) text(s string) {
	const escaped, letters = "\"\\\n\r\t\b\f", `"\nrtbf`
	w.out.WriteByte('"')
	for i, r := range s {
		switch at := strings.IndexRune(escaped, r); {
		case at >= 0:
			w.out.WriteString(`\` + letters[at:at+1])
		case r < ' ' || w.ascii && r > '~' && r < 0x10000:
			fmt.Fprintf(&w.out, `\u%04x`, r)
		case w.ascii && r > '~':
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&w.out, `\u%04x\u%04x`, high, low)
		case r == '\uFFFD' && !strings.HasPrefix(s[i:], "\uFFFD"):
			w.out.WriteByte(s[i]) // not UTF-8
		default:
			w.out.WriteRune(r)
		}
	}
	w.out.WriteByte('"')
}
