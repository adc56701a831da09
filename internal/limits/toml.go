package limits

import (
	"bytes"
	"fmt"
)

// maxTOMLDepth is the maximum nesting of TOML. A recipe needs 3 levels.
const maxTOMLDepth = 16

// CheckTOML returns an error with the line if text nests arrays, tables or parts of a key more than 16
// levels deep. The time and memory of a TOML parser may grow with the square of the depth. CheckTOML does
// not check the syntax otherwise.
func CheckTOML(text []byte) error {
	brackets, dots, line := 0, 0, 1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\'':
			end := stringEnd(text, i)
			line += bytes.Count(text[i:end], []byte("\n"))
			i = end - 1
		case '#':
			if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
				i += n - 1
			} else {
				i = len(text)
			}
		case '.':
			dots++
		case '[', '{':
			brackets, dots = brackets+1, 0
		case ']', '}':
			brackets, dots = max(brackets-1, 0), 0
		case ',', '=':
			dots = 0
		case '\n':
			dots = 0
			line++
		}
		if brackets+dots > maxTOMLDepth {
			return fmt.Errorf("line %d: more than %d levels of nesting", line, maxTOMLDepth)
		}
	}
	return nil
}

// stringEnd returns the end of the TOML string whose first quote is at from: basic ("), literal ('), or
// with three quotes of either kind, over several lines. Strings with one quote end at the latest with the
// line.
func stringEnd(text []byte, from int) int {
	quote := text[from : from+1]
	long := bytes.HasPrefix(text[from:], bytes.Repeat(quote, 3))
	if long {
		quote = text[from : from+3]
	}
	for i := from + len(quote); i < len(text); i++ {
		switch {
		case bytes.HasPrefix(text[i:], quote):
			return i + len(quote)
		case text[i] == '\\' && quote[0] == '"':
			i++
		case text[i] == '\n' && !long:
			return i
		}
	}
	return len(text)
}
