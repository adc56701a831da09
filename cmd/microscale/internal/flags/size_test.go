package flags

import "testing"

// TestSize reads sizes, and rejects what is none.
func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"4GiB": 4 << 30, "800MB": 800e6, "1.5 kib": 1536, "7": 7, "12b": 12, "2tb": 2e12} {
		var got Size
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%s: got %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1GB", "0", "nan", "1e30TB", "4 G"} {
		if err := new(Size).Set(text); err == nil {
			t.Errorf("%q is a size", text)
		}
	}
}
