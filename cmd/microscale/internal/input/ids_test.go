package input

import (
	"slices"
	"strings"
	"testing"
)

// TestParseIDs parses text and integers, and reports what is neither.
func TestParseIDs(t *testing.T) {
	for _, tc := range []struct {
		data string
		raw  bool
		want []uint32
		err  string
	}{
		{" 1 23\n4294967295\n", false, []uint32{1, 23, 4294967295}, ""},
		{"", false, nil, ""},
		{"\x01\x00\x00\x00\xff\x01\x00\x80", true, []uint32{1, 0x800001ff}, ""},
		{"1 x", false, nil, `"x" is not a token id`},
		{"4294967296", false, nil, "is not a token id"},
		{"abcde", true, nil, "got 5 bytes, want ids of 4 bytes"},
	} {
		got, err := ParseIDs([]byte(tc.data), tc.raw)
		if !slices.Equal(got, tc.want) || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %v, %v, want %v, %q", tc.data, got, err, tc.want, tc.err)
		}
	}
}
