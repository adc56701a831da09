package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// OrEmpty makes an empty list of none, which JSON would call null.
func OrEmpty[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}

// PrintJSON writes v as the one JSON document of a command. Characters that are not
// printable, which a terminal may act on, are escaped.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(asciiControls{w})
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// asciiControls writes JSON in which the characters beyond ASCII that are not
// printable (C1 controls, line separators, those that change the direction of text)
// are escaped, as encoding/json does with the controls of ASCII. They occur in
// strings alone. Each Write has whole characters.
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

// A Number is a figure of a JSON document: null where it is infinite or
// undefined. Every float32 is exact as one.
type Number float64

// MarshalJSON writes the number, or null if it is not finite.
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return []byte("null"), nil
	case f == 0 && math.Signbit(f):
		return []byte("-0.0"), nil // many readers take -0 for an integer
	}
	return json.Marshal(f)
}
