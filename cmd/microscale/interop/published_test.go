package interop

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/family"
)

// TestTorchPublished compares what family.Read makes of the configurations of published models with
// transformers' configuration classes: sizes, epsilon, the base of rotary embeddings, and the number of
// layers with windows where the class lists them.
func TestTorchPublished(t *testing.T) {
	interpreter := withTorch(t, "transformers does not read the published configurations", architecturesWith...)
	const path = "../../../family/testdata/published.jsonl"
	var want map[string]map[string]any
	out := filepath.Join(t.TempDir(), "numbers.json")
	script(t, interpreter, "published.py", path, out)
	data, err := os.ReadFile(out)
	if err == nil {
		err = json.Unmarshal(data, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	compared := 0
	for lines.Scan() {
		var row struct {
			Model  string
			Config json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if want[row.Model] == nil {
			continue
		}
		compared++
		for key, got := range readNumbers(t, row.Config) {
			if got != want[row.Model][key] {
				t.Errorf("%s: %s is %v, and transformers has %v", row.Model, key, got, want[row.Model][key])
			}
		}
	}
	if compared < 40 {
		t.Errorf("%d configurations were compared, want at least 40", compared)
	}
}

// readNumbers returns the numbers of a configuration as JSON has them.
func readNumbers(t *testing.T, config []byte) map[string]any {
	t.Helper()
	f, s, err := family.Read(config)
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]any{
		"vocab_size": float64(s.VocabSize), "hidden_size": float64(s.HiddenSize), "intermediate_size": float64(s.IntermediateSize),
		"num_hidden_layers": float64(s.NumHiddenLayers), "num_attention_heads": float64(s.NumAttentionHeads),
		"max_position_embeddings": float64(s.MaxPositionEmbeddings), "rms_norm_eps": s.RMSNormEps, "tie_word_embeddings": s.TieWordEmbeddings,
		"rope_theta": s.RopeTheta,
	}
	if !f.Latent { // whose heads are not those of the configuration
		numbers["head_dim"], numbers["num_key_value_heads"] = float64(s.HeadDim), float64(s.NumKeyValueHeads)
	}
	if f.WindowPeriod() > 0 {
		windows := 0
		for i := range s.NumHiddenLayers {
			if kind, err := f.LayerType(s, i); err == nil && kind == family.SlidingLayer {
				windows++
			}
		}
		numbers["windows"] = float64(windows)
	}
	return numbers
}
