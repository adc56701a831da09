package limits

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
		if len(got) > MaxText || len(got) < MaxText-10 || !strings.HasPrefix(got, "first ") || !strings.HasSuffix(got, " last") ||
			!utf8.ValidString(got) {
			t.Errorf("%d bytes, %.20q", len(got), got)
		}
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"":                       `""`,
		"a\nb":                   `"a\nb"`,
		strings.Repeat("x", 120): `"` + strings.Repeat("x", 120) + `"`,
		strings.Repeat("x", 121): `"` + strings.Repeat("x", 120) + `"…`,
		strings.Repeat("x", 119) + "€" + "more": `"` + strings.Repeat("x", 119) + `"…`,
	} {
		if got := Quote(s); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
