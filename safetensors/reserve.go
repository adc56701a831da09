package safetensors

import (
	"bytes"
	"fmt"
)

// Reserve marks bytes of the header as unknown: those of a placeholder, such as a
// metadata value, which must occur exactly once. [Writer.Fill] replaces them.
// Comparisons of files with the layout ignore them.
func (l *Layout) Reserve(placeholder string) error {
	if n := bytes.Count(l.prefix[lengthSize:], []byte(placeholder)); n != 1 {
		return fmt.Errorf("reserve: the placeholder %.40q occurs %d times in the header, want once", placeholder, n)
	}
	l.from = bytes.Index(l.prefix[lengthSize:], []byte(placeholder)) + lengthSize
	l.to = l.from + len(placeholder)
	return nil
}

// Filled returns the bytes that [Layout.Open] read where the layout reserves them.
func (f *File) Filled() string { return f.filled }

// fits reports whether head, the bytes of a file from byte from on, matches the layout's
// header, except for reserved bytes.
func (l *Layout) fits(head []byte, from int) bool {
	if len(head) != len(l.prefix)-from {
		return false
	}
	if l.to == 0 {
		return bytes.Equal(head, l.prefix[from:])
	}
	return bytes.Equal(head[:l.from-from], l.prefix[from:l.from]) && bytes.Equal(head[l.to-from:], l.prefix[l.to:])
}

// Fill writes the bytes that [Layout.Reserve] marked. value must have their length.
func (w *Writer) Fill(value string) error {
	if len(value) != w.layout.to-w.layout.from {
		return fmt.Errorf("%s: fill: got %d bytes, want the %d that the header reserves", w.path, len(value), w.layout.to-w.layout.from)
	}
	if _, err := w.f.WriteAt([]byte(value), int64(w.layout.from)); err != nil {
		return ioError(w.path, place("", int64(w.layout.from)), err)
	}
	return nil
}
