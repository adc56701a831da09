package limits

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxText is the maximum length of a [Text] in bytes.
const MaxText = 1000

// Text returns the part of an error message that quotes the content of a file as one line of at
// most MaxText bytes. It cuts the middle of a longer one.
func Text(s string) string {
	s = strings.ReplaceAll(s, "\n", " ")
	if len(s) <= MaxText {
		return s
	}
	const cut = " … "
	from, to := (MaxText-len(cut))/2, len(s)-(MaxText-len(cut))/2
	for !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	return s[:from] + cut + s[to:]
}

// Quote quotes a name from a file, of which it keeps at most 120 bytes: the name may have a hundred megabytes.
func Quote(s string) string {
	const maxBytes = 120
	if len(s) <= maxBytes {
		return strconv.Quote(s)
	}
	n := maxBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strconv.Quote(s[:n]) + "…"
}
