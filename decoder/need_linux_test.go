package decoder

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestLoadMemory loads a model of 1.6 TB, whose file is sparse: an error before memory is allocated.
func TestLoadMemory(t *testing.T) {
	const layers, hidden, width, vocabulary = 64, 4096, 1 << 19, 256
	dir, end := t.TempDir(), int64(0)
	header := map[string]any{}
	add := func(name string, shape ...int64) {
		bytes := int64(2)
		for _, n := range shape {
			bytes *= n
		}
		header[name] = map[string]any{"dtype": "F16", "shape": shape, "data_offsets": []int64{end, end + bytes}}
		end += bytes
	}
	add("model.embed_tokens.weight", vocabulary, hidden)
	add("lm_head.weight", vocabulary, hidden)
	add("model.norm.weight", hidden)
	for i := range layers {
		prefix := fmt.Sprintf("model.layers.%d.", i)
		add(prefix+"input_layernorm.weight", hidden)
		add(prefix+"post_attention_layernorm.weight", hidden)
		for _, name := range []string{"q", "k", "v", "o"} {
			add(prefix+"self_attn."+name+"_proj.weight", hidden, hidden)
		}
		add(prefix+"mlp.gate_proj.weight", width, hidden)
		add(prefix+"mlp.up_proj.weight", width, hidden)
		add(prefix+"mlp.down_proj.weight", hidden, width)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(dir, "model.safetensors")
	config := fmt.Sprintf(`{"model_type": "llama", "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d, `+
		`"num_attention_heads": 32, "vocab_size": %d}`, hidden, width, layers, vocabulary)
	err = errors.Join(
		os.WriteFile(weights, append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), 0o600),
		os.Truncate(weights, 8+int64(len(text))+end),
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600),
	)
	if err != nil {
		t.Skipf("no sparse file of %d bytes: %v", end, err)
	}
	if _, err := Load(t.Context(), dir, LoadOptions{Inference: true}); !errors.Is(err, ErrMemory) {
		t.Errorf("got %v", err)
	}
}
