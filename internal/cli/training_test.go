package cli

import "testing"

func TestSeparator(t *testing.T) {
	if got := separator.Replace(`a\n\r\t\\n`); got != "a\n\r\t\\n" {
		t.Errorf("got %q", got)
	}
}
