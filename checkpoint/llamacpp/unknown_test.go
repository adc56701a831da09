package llamacpp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
)

// TestUnknownMetadata checks which metadata become keys that decoder rejects, and what a factor without a
// type scales.
func TestUnknownMetadata(t *testing.T) {
	for _, c := range []struct {
		architecture, key string
		value             any
		unknown           bool
		scaling           string // rope_scaling
	}{
		{"llama", "foo", uint32(5), true, "<nil>"},
		{"llama", "foo", uint32(0), false, "<nil>"},
		{"llama", "logit_scale", float32(8), true, "<nil>"},
		{"granite", "logit_scale", float32(8), false, "<nil>"},
		{"llama", "tensor_data_layout", "Meta AI original pth", false, "<nil>"},
		{"llama", "rope.dimension_count", uint32(16), false, "<nil>"},
		{"llama", "rope.dimension_count", uint32(8), true, "<nil>"},
		{"phi3", "rope.dimension_count", uint32(8), false, "<nil>"},
		{"phi3", "attention.sliding_window", uint32(2047), false, "<nil>"},
		{"llama", "attention.sliding_window", uint32(2047), true, "<nil>"},
		{"gemma3", "rope.freq_base_swa", float32(1e4), false, "<nil>"},
		{"gemma3", "rope.freq_base_swa", float32(5e4), true, "<nil>"},
		{"llama", "rope.scaling.factor", float32(4), false, "map[factor:4 rope_type:linear]"},
		{"llama", "rope.scale_linear", float32(2.5), false, "map[factor:2.5 rope_type:linear]"},
	} {
		key := c.architecture + "." + c.key
		path := file(t, []gguf.Spec{{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 64}}},
			gguf.Pair{Key: "general.architecture", Value: c.architecture},
			gguf.Pair{Key: c.architecture + ".embedding_length", Value: uint32(64)}, gguf.Pair{Key: c.architecture + ".attention.head_count",
				Value: uint32(4)},
			gguf.Pair{Key: key, Value: c.value})
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := configuration(f)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
		if _, ok := members[key]; ok != c.unknown {
			t.Errorf("%s = %v: unknown: %v, want %v", key, c.value, ok, c.unknown)
		}
		if got := fmt.Sprint(members["rope_scaling"]); got != c.scaling {
			t.Errorf("%s = %v: rope_scaling is %s, want %s", key, c.value, got, c.scaling)
		}
		if err := checkParameters(f); err == nil || strings.Contains(err.Error(), "the metadata have "+fmt.Sprintf("%q", key)) != c.unknown {
			t.Errorf("%s = %v: a directory: %v", key, c.value, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
