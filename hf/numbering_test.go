package hf

import (
	"fmt"
	"testing"
)

// TestNumberingMany: the names of thousands of shards are checked in time that grows
// with their number, not with its cube.
func TestNumberingMany(t *testing.T) {
	const shards = 20_000
	names := make([]string, shards)
	for i := range names {
		names[i] = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
	}
	if name, missing := numberingGap(names); missing != "" {
		t.Errorf("%s: %s is missing", name, missing)
	}
	if _, missing := numberingGap(names[1:]); missing != "model-00001-of-20000.safetensors" {
		t.Errorf("missing is %q", missing)
	}
}
