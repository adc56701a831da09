package conversion

import (
	"encoding/json"
	"testing"
)

// TestShortened checks that long lists are truncated at any depth, and others are not.
func TestShortened(t *testing.T) {
	for before, want := range map[string]string{
		`[1,2,3,4,5,6,7,8,9]`:            `[1,2,3,4,5,6,7,8,9]`,
		`{"a":[1,2,3,4,5,6,7,8,9,10]}`:   `{"a":[1,2,3,4,5,6,7,8,"… and 2 more"]}`,
		`{"a":{"b":[[1],[2]],"c":null}}`: `{"a":{"b":[[1],[2]],"c":null}}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(before), &v); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(shortened(v))
		if err != nil || string(got) != want {
			t.Errorf("%s is shortened to %s, want %s (%v)", before, got, want, err)
		}
	}
}
