package hf

import (
	"fmt"
	"testing"
)

// TestNumberingMany checks that the check of many shards takes time in proportion to their number.
func TestNumberingMany(t *testing.T) {
	const shards = 20_000
	names := make([]string, shards)
	for i := range names {
		names[i] = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
	}
	if name, missing := numberingGap(names); missing != "" {
		t.Errorf("got missing shard %[2]s by %[1]s, want none", name, missing)
	}
	if _, missing := numberingGap(names[1:]); missing != "model-00001-of-20000.safetensors" {
		t.Errorf("got missing shard %q", missing)
	}
}
