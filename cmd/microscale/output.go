package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// printJSON writes v as the one JSON document of a command. Characters that are not
// printable, which a terminal may act on, are escaped.
func printJSON(w io.Writer, v any) error {
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

// A number is a figure of a JSON document: null where it is infinite or
// undefined. Every float32 is exact as one.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return []byte("null"), nil
	case f == 0 && math.Signbit(f):
		return []byte("-0.0"), nil // many readers take -0 for an integer
	}
	return json.Marshal(f)
}

// printable returns a name as it is, or quoted where a terminal would act on it.
func printable(name string) string {
	if escaped(name) != name {
		return strconv.Quote(name)
	}
	return name
}

// escaped returns text with what is not printable written as Go does.
func escaped(text string) string {
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

// A column is a column of a table: its title, and whether it holds numbers.
type column struct {
	title   string
	numeric bool
}

// newTable returns a table in the style of all commands: no boxes, one rule
// below the titles, numbers to the right.
func newTable(columns ...column) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.Options{SeparateHeader: true, SeparateFooter: true, SeparateColumns: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", ""
	style.Box.MiddleVertical = "  "
	rule := strings.Repeat(style.Box.MiddleHorizontal, len(style.Box.MiddleVertical))
	style.Box.MiddleSeparator, style.Box.BottomSeparator = rule, rule
	style.Format.Header = text.FormatDefault
	style.Format.Footer = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	titles := make(table.Row, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	t.AppendHeader(titles)
	t.SetColumnConfigs(numericColumns(columns))
	return t
}

// numericColumns puts the columns that hold numbers to the right.
func numericColumns(columns []column) []table.ColumnConfig {
	var configs []table.ColumnConfig
	for i, c := range columns {
		if c.numeric {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
		}
	}
	return configs
}

// printWrapped writes text behind a title, in lines that fit the terminal; those
// after the first are indented by as much as the title's column.
func printWrapped(w io.Writer, title string, indent, width int, body string) error {
	for _, line := range strings.Split(text.WrapSoft(body, max(width-indent, 20)), "\n") {
		if _, err := fmt.Fprintf(w, "%-*s%s\n", indent, title, strings.TrimRight(line, " ")); err != nil {
			return err
		}
		title = ""
	}
	return nil
}

// terminalWidth returns the columns of the terminal that w is, 80 where it is none.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
