package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Printable returns name, quoted if it holds characters that are not printable.
func Printable(name string) string {
	if Escaped(name) != name {
		return strconv.Quote(name)
	}
	return name
}

// Escaped returns text with Go escapes for what is not printable.
func Escaped(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !strconv.IsPrint(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// PrintWrapped writes body after title in lines of width columns, indented after the
// title.
func PrintWrapped(w io.Writer, title string, indent, width int, body string) error {
	for _, line := range strings.Split(text.WrapSoft(body, max(width-indent, 20)), "\n") {
		if _, err := fmt.Fprintf(w, "%-*s%s\n", indent, title, strings.TrimRight(line, " ")); err != nil {
			return err
		}
		title = ""
	}
	return nil
}
