package configjson

import (
	"fmt"
	"strings"
	"testing"
)

// TestNamed renames the keys of an error and of one in its arguments, and no other text.
func TestNamed(t *testing.T) {
	inner := fmt.Errorf("model: %w", Invalid("%s is %d, want a divisor of %s", Key("kv_heads"), 3, Key("heads")))
	err := Invalid("%s of heads is %d: %v", Key("ranks"), 2, inner)
	if want := "ranks of heads is 2: model: kv_heads is 3, want a divisor of heads"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	got := err.(*KeyError).Named(func(k Key) string { return "--" + strings.ReplaceAll(string(k), "_", "-") })
	if want := "--ranks of heads is 2: --kv-heads is 3, want a divisor of --heads"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
