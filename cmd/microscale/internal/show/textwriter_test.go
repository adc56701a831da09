package show

import (
	"strings"
	"testing"
)

// TestTextWriter checks that controls are escaped for a terminal, and that characters are
// written as a whole.
func TestTextWriter(t *testing.T) {
	for _, escape := range []bool{false, true} {
		var out strings.Builder
		w := &TextWriter{W: &out, Escape: escape}
		for _, b := range []byte("a\té\x1b[2J\xff\n\xc3") {
			w.Write([]byte{b})
		}
		w.End()
		want := "a\té\x1b[2J\xff\n\xc3\n"
		if escape {
			want = "a\té" + `\x1b[2J\xff` + "\n" + `\xc3` + "\n"
		}
		if out.String() != want || w.Err != nil {
			t.Errorf("%q, %v, want %q", out.String(), w.Err, want)
		}
	}
}
