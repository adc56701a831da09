package show

import (
	"io"
	"strings"
	"unicode/utf8"
)

// A TextWriter writes text that arrives in parts. With Escape, for terminals, it escapes
// controls and bytes that are not UTF-8.
type TextWriter struct {
	W      io.Writer
	Escape bool
	held   []byte // an incomplete character
	last   byte
	Err    error
}

// Write writes the whole characters of the text, with one call of W.
func (t *TextWriter) Write(p []byte) {
	if !t.Escape {
		t.put(string(p))
		return
	}
	t.held = append(t.held, p...)
	var out strings.Builder
	for utf8.FullRune(t.held) {
		_, n := utf8.DecodeRune(t.held)
		out.WriteString(escapedText(string(t.held[:n])))
		t.held = t.held[n:]
	}
	t.put(out.String())
}

// escapedText escapes a character unless it belongs to the layout of text.
func escapedText(character string) string {
	if character == "\n" || character == "\t" {
		return character
	}
	return Escaped(character)
}

func (t *TextWriter) put(text string) {
	if text == "" {
		return
	}
	if t.Err == nil {
		_, t.Err = io.WriteString(t.W, text)
	}
	t.last = text[len(text)-1]
}

// End writes the held bytes and ends the line.
func (t *TextWriter) End() {
	if len(t.held) > 0 {
		t.put(Escaped(string(t.held)))
	}
	if t.last != '\n' {
		t.put("\n")
	}
}
