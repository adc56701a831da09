package jinja

import "testing"

// TestParseJSON writes values back with the filter tojson, which keeps the order of members.
func TestParseJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"b": [1, -2.5, 1e2, true, null], "a": {"x": "é"}}`: `{"b": [1, -2.5, 100.0, true, null], "a": {"x": "é"}}`,
		`"text"`: `"text"`, `[]`: `[]`, `{}`: `{}`, `9223372036854775807`: `9223372036854775807`,
	} {
		value, err := ParseJSON([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		c, err := Compile("{{ x | tojson }}")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Render(map[string]any{"x": value}); err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{``, `{`, `[1`, `{"a"}`, `1 2`, `nope`} {
		if value, err := ParseJSON([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, value)
		}
	}
}
