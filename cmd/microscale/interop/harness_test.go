package interop

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/safetensors"
)

// TestHarness scores two tasks by lm_eval on SmolLM2: through the server, with its backend for completions, and by
// its backend for transformers, from the same weights in FP32. The log-likelihoods agree to a thousandth of a nat for
// each token that is scored, and the greedy answers and the accuracy are equal.
func TestHarness(t *testing.T) {
	interpreter := withTorch(t, "lm_eval scores nothing", "lm-eval[api]==0.4.13", "transformers==5.23.0", "accelerate==1.15.0",
		"--no-binary=sqlitedict,word2number,rouge-score") // PyPI has their sources only
	dir, work := filepath.Join(t.TempDir(), "decoded"), t.TempDir()
	writeDecoded(t, smollm2(t), dir, safetensors.F32)
	d, err := decoder.Load(t.Context(), dir, decoder.LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := generation.New("smollm2", d, textOf(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(work, "out.json")
	script(t, interpreter, "harness.py", serveModel(t, m)+"/v1", dir, filepath.Join("..", "..", "..", "LICENSE"), out)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]struct {
		Choices     [][][2]any
		Accuracy    float64
		BitsPerByte float64 `json:"bits_per_byte"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	a, b := got["completions"], got["transformers"]
	if len(a.Choices) != 12 || len(b.Choices) != 12 || a.Accuracy != b.Accuracy || math.Abs(a.BitsPerByte-b.BitsPerByte) > 1e-3 {
		t.Errorf("got %+v, want %+v", a, b)
	}
	const mostTokens = 8
	for i, want := range b.Choices {
		score, greedy := a.Choices[i][0][0].(float64), a.Choices[i][0][1]
		if difference := math.Abs(score - want[0][0].(float64)); !(difference < 1e-3*mostTokens) || greedy != want[0][1] {
			t.Errorf("choice %d: got %g, greedy %v, want %v", i, score, greedy, want[0])
		}
	}
	t.Logf("accuracy %g, %g and %g bits per byte", a.Accuracy, a.BitsPerByte, b.BitsPerByte)
}
