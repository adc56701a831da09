package bounded

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", MaxText)} {
		if got := Text(s); got != s {
			t.Errorf("%d bytes become %d", len(s), len(got))
		}
	}
	if got := Text("two\nlines"); got != "two lines" {
		t.Errorf("got %q", got)
	}
	for pad := range 4 {
		got := Text("first " + strings.Repeat("y", pad) + strings.Repeat("€", 50_000) + " last")
		if len(got) > MaxText || len(got) < MaxText-10 || !strings.HasPrefix(got, "first ") || !strings.HasSuffix(got, " last") || !utf8.ValidString(got) {
			t.Errorf("%d bytes, %.20q", len(got), got)
		}
	}
}
