package cli

import (
	"testing"
)

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"json", "jsn", 1}, {"json", "json", 0}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"mxpf8", "mxfp8", 1}, {"abc", "ca", 3}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("from %q to %q it is %d edits, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
