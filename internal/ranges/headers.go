package ranges

import (
	"net/http"
	"path"
	"strconv"
	"strings"
	"unicode"
)

// ValidName reports whether the name that a server gives a file stays in its folder on every system, and has no control
// characters.
func ValidName(name string) bool {
	return name != "" && path.Clean("/"+name) == "/"+name && !strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// ContentRange parses a header such as "bytes 0-99/1000". The total is −1 if the server does not tell.
func ContentRange(h http.Header) (first, total int64) {
	span, all, _ := strings.Cut(strings.TrimPrefix(h.Get("Content-Range"), "bytes "), "/")
	from, _, _ := strings.Cut(span, "-")
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		first = -1
	}
	if total, err = strconv.ParseInt(all, 10, 64); err != nil {
		total = -1
	}
	return first, total
}
