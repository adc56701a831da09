package chat

import (
	"regexp"
	"strings"
	"unicode"
)

// explicitText rewrites a template so that its text is in string expressions, without the white
// space that Jinja removes with trim_blocks and lstrip_blocks. The library would remove that of
// the nearest text even if other tags are between, and does not know the sign +.
func explicitText(template string) string {
	var out strings.Builder
	rest := strings.TrimSuffix(strings.ReplaceAll(template, "\r\n", "\n"), "\n")
	lineStart, raw := true, false
	for rest != "" {
		from, to := nextTag(rest, raw)
		text, t := rest[:from], parseTag(rest[from:to])
		rest = rest[to:]
		if t.begin == '-' {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		} else if line := strings.LastIndexByte(text, '\n') + 1; t.isBlock() && t.begin != '+' &&
			(line > 0 || lineStart) && strings.TrimSpace(text[line:]) == "" {
			text = text[:line]
		}
		if text != "" {
			out.WriteString(`{{ "` + quoted.Replace(text) + `" }}`)
		}
		raw = t.write(&out)
		lineStart = false
		if t.end == '-' {
			trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace)
			lineStart = strings.HasSuffix(rest[:len(rest)-len(trimmed)], "\n")
			rest = trimmed
		} else if t.isBlock() && t.end != '+' && !raw && strings.HasPrefix(rest, "\n") {
			lineStart, rest = true, rest[1:]
		}
	}
	return out.String()
}

// quoted escapes the text of a string.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// endRaw matches the tag that ends {% raw %}.
var endRaw = regexp.MustCompile(`\{%[-+]?\s*endraw\s*[-+]?%\}`)

// nextTag returns where the next tag is: at the end of the template if there is none.
func nextTag(template string, raw bool) (from, to int) {
	if raw {
		if m := endRaw.FindStringIndex(template); m != nil {
			return m[0], m[1]
		}
		return len(template), len(template)
	}
	for from = 0; from+1 < len(template); from++ {
		if template[from] == '{' && strings.IndexByte("{%#", template[from+1]) >= 0 {
			return from, from + tagLength(template[from:])
		}
	}
	return len(template), len(template)
}

// tagLength returns the length of the tag that a template begins with. Delimiters in strings do
// not end it.
func tagLength(template string) int {
	if template[1] == '#' {
		if i := strings.Index(template[2:], "#}"); i >= 0 {
			return i + 4
		}
		return len(template)
	}
	closing := template[1:2] + "}"
	if closing == "{}" {
		closing = "}}"
	}
	var quote byte
	for i := 2; i < len(template); i++ {
		switch c := template[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.HasPrefix(template[i:], closing):
			return i + 2
		}
	}
	return len(template)
}

// A tag is a part of a template that is not text.
type tag struct {
	kind       byte // '{', '%' or '#'; 0 if there is none
	begin, end byte // signs - and +, or 0
	body       string
}

func parseTag(text string) (t tag) {
	if len(text) < len("{##}") {
		return tag{body: text}
	}
	t.kind, t.body = text[1], text[2:len(text)-2]
	if t.body != "" && (t.body[0] == '-' || t.body[0] == '+') {
		t.begin, t.body = t.body[0], t.body[1:]
	}
	if n := len(t.body) - 1; n >= 0 && (t.body[n] == '-' || t.body[n] == '+' && t.isBlock()) {
		t.end, t.body = t.body[n], t.body[:n]
	}
	return t
}

// isBlock reports whether trim_blocks and lstrip_blocks apply to a tag.
func (t tag) isBlock() bool { return t.kind == '%' || t.kind == '#' }

// write writes a tag without signs, and reports whether it begins raw text.
func (t tag) write(out *strings.Builder) (raw bool) {
	name := ""
	if words := strings.Fields(t.body); len(words) > 0 {
		name = words[0]
	}
	switch {
	case t.kind == 0:
		out.WriteString(t.body)
	case t.kind == '{':
		out.WriteString("{{" + t.body + "}}")
	case t.kind == '#' || name == "endraw":
	case name == "raw":
		return true
	default:
		out.WriteString("{%" + t.body + "%}")
	}
	return false
}
