package limits

import (
	"strings"
	"testing"
)

// TestHasWeights checks beginnings of files.
func TestHasWeights(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "abc": false, "GGUF": false, "GGUF\x03\x00\x00\x00\x00": true, "FUGG\x03\x00\x00\x00\x00": false,
		"\x02\x00\x00\x00\x00\x00\x00\x00{}":                true,
		"\x02\x00\x00\x00\x00\x00\x00\x00{}data":            true,
		"\x03\x00\x00\x00\x00\x00\x00\x00{}":                false,
		"\x02\x00\x00\x00\x00\x00\x00\x80{}":                false,
		"\x02\x00\x00\x00\x00\x00\x00\x00[]":                false,
		"version https://git-lfs.github.com/spec/v1\noid":   false,
		"{\"a\":1}{                                       ": false,
	} {
		if got := HasWeights(strings.NewReader(text), int64(len(text))); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
