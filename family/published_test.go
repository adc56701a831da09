package family

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestPublished reads the configurations of published models: what their authors wrote, with the keys that
// they left to the defaults of the class and those that the class ignores. A model of a known family is
// read; another is rejected by its type.
func TestPublished(t *testing.T) {
	f, err := os.Open("testdata/published.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, read := bufio.NewScanner(f), 0
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Model, Refused string
			Config         json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		_, s, err := Read(row.Config)
		switch {
		case row.Refused != "" && (err == nil || !strings.Contains(err.Error(), row.Refused)):
			t.Errorf("%s: got %v, want an error that contains %q", row.Model, err, row.Refused)
		case row.Refused == "" && err != nil:
			t.Errorf("%s: %v", row.Model, err)
		case row.Refused == "":
			read++
			type sizes struct {
				Hidden int `json:"hidden_size"`
				Layers int `json:"num_hidden_layers"`
			}
			var want struct {
				sizes
				Text sizes `json:"text_config"`
			}
			if err := json.Unmarshal(row.Config, &want); err != nil {
				t.Fatal(err)
			}
			hidden, layers := max(want.Hidden, want.Text.Hidden), max(want.Layers, want.Text.Layers)
			if hidden > 0 && s.HiddenSize != hidden || layers > 0 && s.NumHiddenLayers != layers {
				t.Errorf("%s: got %d layers of %d, its configuration says %d of %d", row.Model, s.NumHiddenLayers, s.HiddenSize, layers, hidden)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if read < 50 {
		t.Errorf("%d configurations were read, want at least 50", read)
	}
}

// TestDefaults: keys that Gemma 3's configurations leave to the class, and a number of experts under another
// name than that of the default.
func TestDefaults(t *testing.T) {
	_, s, err := Read([]byte(`{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, ` +
		`"num_hidden_layers": 34}}`))
	if err != nil {
		t.Fatal(err)
	}
	if s.VocabSize != 262208 || s.NumAttentionHeads != 8 || s.NumKeyValueHeads != 4 || s.HeadDim != 256 || s.RMSNormEps != 1e-6 ||
		s.MaxPositionEmbeddings != 131072 {
		t.Errorf("Gemma 3 has %+v", s.Config)
	}
	_, s, err = Read([]byte(`{"model_type": "gpt_oss", "num_experts": 32}`))
	if err != nil || max(s.Experts, s.LocalExperts) != 32 {
		t.Errorf("gpt-oss with 32 experts has %d and %d, error %v", s.Experts, s.LocalExperts, err)
	}
	if _, s, err = Read([]byte(`{"model_type": "llama"}`)); err != nil || s.RMSNormEps != 1e-6 {
		t.Errorf("Llama's epsilon is %g, error %v", s.RMSNormEps, err)
	}
}
