package cli

import (
	"strings"
	"testing"
)

// TestTextWriter: on a terminal nothing that acts on it is written, and characters
// come whole.
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
