package interop

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/safetensors"
)

// TestTorchFamilies compares the logits of small random models of every family with those of
// transformers' classes, in F32: of a whole sequence, and of a session that gets it in two parts.
func TestTorchFamilies(t *testing.T) {
	interpreter := withTorch(t, "transformers does not compute the logits of the families", architecturesWith...)
	root := t.TempDir()
	script(t, interpreter, "families.py", root)
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d models, %v", len(entries), err)
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			dir := filepath.Join(root, e.Name())
			tokens, want := expectedLogits(t, filepath.Join(dir, "expected.safetensors"))
			for _, inference := range []bool{false, true} {
				m, err := decoder.Load(t.Context(), filepath.Join(dir, "model"), decoder.LoadOptions{Inference: inference})
				if err != nil {
					t.Fatal(err)
				}
				logits, err := m.Logits(t.Context(), tokens, 1)
				if err != nil {
					t.Fatal(err)
				}
				distance := requireLogits(t, logits.Data, want)
				const first = 100 // below the original length of long rotary embeddings
				s, err := m.NewSession(len(tokens))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Append(t.Context(), tokens[:first]); err != nil {
					t.Fatal(err)
				}
				last, err := s.Append(t.Context(), tokens[first:])
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("inference %v: largest difference %.2g of the largest logit, of a session %.2g", inference, distance, requireLogits(t, last, want[len(want)-len(last):]))
			}
		})
	}
}

// expectedLogits reads the tokens and the logits that families.py wrote.
func expectedLogits(t *testing.T, path string) (tokens []int32, logits []float32) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += 4 {
			word := uint32(data[i]) | uint32(data[i+1])<<8 | uint32(data[i+2])<<16 | uint32(data[i+3])<<24
			if info.Name == "tokens" {
				tokens = append(tokens, int32(word))
			} else {
				logits = append(logits, math.Float32frombits(word))
			}
		}
	}
	return tokens, logits
}

// requireLogits returns the largest difference as a share of the largest logit. It must be below 2e-5.
func requireLogits(t *testing.T, got, want []float32) float64 {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("got %d logits, want %d", len(got), len(want))
	}
	largest, worst, at := 0.0, 0.0, 0
	for i, w := range want {
		largest = max(largest, math.Abs(float64(w)))
		if d := math.Abs(float64(got[i] - w)); !(d <= worst) {
			worst, at = d, i
		}
	}
	if !(worst <= 2e-5*largest) {
		t.Errorf("logit %d: got %g, want %g, largest %g", at, got[at], want[at], largest)
	}
	return worst / largest
}
