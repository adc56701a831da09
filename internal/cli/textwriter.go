package cli

import (
	"io"
	"unicode/utf8"
)

// A TextWriter writes text byte by byte. With Escape, for terminals, it escapes
// controls and bytes that are not UTF-8.
type TextWriter struct {
	W      io.Writer
	Escape bool
	held   []byte // an incomplete character
	last   byte
	Err    error
}

func (t *TextWriter) Write(p []byte) {
	t.held = append(t.held, p...)
	for len(t.held) > 0 {
		n := 1
		if t.Escape {
			if !utf8.FullRune(t.held) {
				return
			}
			_, n = utf8.DecodeRune(t.held)
		}
		t.put(string(t.held[:n]))
		t.held = t.held[n:]
	}
}

func (t *TextWriter) put(character string) {
	if t.Escape && character != "\n" && character != "\t" {
		character = Escaped(character)
	}
	if t.Err == nil {
		_, t.Err = io.WriteString(t.W, character)
	}
	t.last = character[len(character)-1]
}

// End writes the held bytes and ends the line.
func (t *TextWriter) End() {
	if len(t.held) > 0 {
		t.put(string(t.held))
	}
	if t.last != '\n' {
		t.put("\n")
	}
}
