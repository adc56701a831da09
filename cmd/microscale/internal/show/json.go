package show

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// OrEmpty returns list, or an empty one instead of nil, which would be null in JSON.
func OrEmpty[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}

// PrintJSON writes v as the one JSON document of a command. It escapes characters that
// are not printable, because a terminal may interpret them.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(asciiControls{w})
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// listEnd ends a document whose last member is a list without elements.
const listEnd = "]\n}\n"

// PrintList writes the document that [PrintJSON] writes of head if its last member, an empty list, has the given elements.
// Of these it holds one at a time.
func PrintList[E any](w io.Writer, head any, list iter.Seq[E]) error {
	out := bufio.NewWriter(w)
	if err := PrintJSON(unended{out}, head); err != nil {
		return err
	}
	var text bytes.Buffer
	e := json.NewEncoder(asciiControls{&text})
	e.SetEscapeHTML(false)
	e.SetIndent("    ", "  ")
	before, end := "\n    ", listEnd
	for element := range list {
		text.Reset()
		text.WriteString(before)
		if err := e.Encode(element); err != nil {
			return err
		}
		if _, err := out.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
			return err
		}
		before, end = ",\n    ", "\n  "+listEnd
	}
	if _, err := out.WriteString(end); err != nil {
		return err
	}
	return out.Flush()
}

// unended writes a document that ends with listEnd without this end.
type unended struct{ io.Writer }

func (w unended) Write(p []byte) (int, error) {
	open, ok := bytes.CutSuffix(p, []byte(listEnd))
	if !ok {
		panic("show: the last member of the document is not an empty list")
	}
	if _, err := w.Writer.Write(open); err != nil {
		return 0, err
	}
	return len(p), nil
}

// asciiControls escapes the characters of JSON beyond ASCII that are not printable: C1
// controls, line separators, bidirectional controls. encoding/json escapes those of
// ASCII. They occur in strings only. Every Write must end with a whole character.
type asciiControls struct{ io.Writer }

func (w asciiControls) Write(p []byte) (int, error) {
	plain := func(r rune) bool { return r < 0x7f || strconv.IsPrint(r) }
	if !bytes.ContainsFunc(p, func(r rune) bool { return !plain(r) }) {
		return w.Writer.Write(p)
	}
	out := make([]byte, 0, len(p)+64)
	for from := 0; from < len(p); {
		r, size := utf8.DecodeRune(p[from:])
		switch high, low := utf16.EncodeRune(r); {
		case plain(r):
			out = append(out, p[from:from+size]...)
		case r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		from += size
	}
	if _, err := w.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// A Number is a number of a JSON document, null if it is not finite. It represents
// every float32 exactly.
type Number float64

// MarshalJSON writes the number, or null if it is not finite.
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return []byte("null"), nil
	case f == 0 && math.Signbit(f):
		return []byte("-0.0"), nil // many parsers read -0 as an integer
	}
	return json.Marshal(f)
}
