package input

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadAll(t *testing.T) {
	if got, err := ReadAll(strings.NewReader("four"), "x", 4); string(got) != "four" || err != nil {
		t.Errorf("at the limit: got %q, %v", got, err)
	}
	if _, err := ReadAll(strings.NewReader("fives"), "x", 4); err == nil || err.Error() != "read x: it is too long: want at most 4 bytes" {
		t.Errorf("above the limit: got %v", err)
	}
	broken := errors.New("broken")
	if _, err := ReadAll(iotest.ErrReader(broken), "x", 4); !errors.Is(err, broken) {
		t.Errorf("failed read: got %v", err)
	}
}
