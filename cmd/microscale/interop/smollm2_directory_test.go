package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/safetensors"
)

// TestSmolLM2Directory compares the model with the Hugging Face directory of its decoded values, in
// logits and in what it knows of text.
func TestSmolLM2Directory(t *testing.T) {
	slow.Full(t, "it decodes a real model twice; TestGGUFDirectory of decoder compares a small one")
	path, dir := smollm2(t), filepath.Join(t.TempDir(), "decoded")
	writeDecoded(t, path, dir, safetensors.F32)
	tokens := tokensOf(t, dir, string(read(t, "../../..", "LICENSE")))
	if !slices.Equal(tokens, tokensOf(t, path, string(read(t, "../../..", "LICENSE")))) {
		t.Error("the tokens of the directory differ")
	}
	var want []float32
	for _, model := range []string{path, dir} {
		m, err := decoder.Load(t.Context(), model, decoder.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		logits, err := m.Logits(t.Context(), tokens[:64], 1)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = logits.Data
		} else {
			t.Logf("largest difference %.2g of the largest logit", requireLogits(t, logits.Data, want))
		}
	}
	a, b := textOf(t, path), textOf(t, dir)
	if a.Template == "" || a.Template != b.Template || a.BOS != b.BOS || a.EOS != b.EOS || !slices.Equal(a.Stop, b.Stop) {
		t.Errorf("got the tokens %q, %q and %v, want %q, %q and %v", b.BOS, b.EOS, b.Stop, a.BOS, a.EOS, a.Stop)
	}
}

// textOf returns the text of a model.
func textOf(t *testing.T, path string) generation.Text {
	t.Helper()
	m, err := input.LoadModel(t.Context(), path, generation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Text
}

// TestSmolLM2Requantized quantizes the GGUF file to directories, and runs, evaluates and times each. The
// first is in README.md.
func TestSmolLM2Requantized(t *testing.T) {
	slow.Full(t, "it quantizes and runs a real model in several formats")
	program, dir, name := build(t), t.TempDir(), filepath.Base(smollm2(t))
	if err := os.Symlink(smollm2(t), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	text := string(read(t, "../../..", "LICENSE"))[:1500]
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(arguments ...string) string {
		t.Helper()
		cmd := exec.Command(program, arguments...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", arguments, err)
		}
		return string(out)
	}
	for _, format := range []string{"mxfp8", "nvfp4", "mxfp4"} {
		model := "SmolLM2-" + strings.ToUpper(format)
		do("quantize", name, model, "--format", format, "--requantize")
		if out := do("eval", model, "--text", "text", "--context", "128"); !strings.Contains(out, "nats per token") {
			t.Errorf("eval: got %s", out)
		}
		if out := do("bench", "llm", model, "--prompt", "8", "--generate", "2", "--rounds", "1", "--budget", "1ms"); !strings.Contains(out,
			"tg2") {
			t.Errorf("bench llm: got %s", out)
		}
		answer := do("run", model, smollm2Text[0].prompt, "--temperature", "0", "--max-tokens", "43")
		t.Logf("%s: %s", format, answer)
		if format == "mxfp8" {
			line := strings.Join([]string{"    $ microscale quantize", name, model, "--format", format, "--requantize"}, " ") + "\n" +
				"    $ microscale run " + model + ` "` + smollm2Text[0].prompt + "\" --temperature 0 --max-tokens 43\n"
			sameGenerated(t, "README.md", "smollm2 directory", line+"    "+strings.Join(wrapped(answer, 120), "\n    ")+"\n", sameTrimmed)
		}
	}
}

// TestTorchSmolLM2Tokenizer compares the ids of the directory's tokenizer in transformers, and of a
// conversation, with those of the GGUF file.
func TestTorchSmolLM2Tokenizer(t *testing.T) {
	interpreter := withTorch(t, "transformers does not read the tokenizer", architecturesWith...)
	path, root := smollm2(t), t.TempDir()
	dir, result := filepath.Join(root, "decoded"), filepath.Join(root, "result.json")
	writeDecoded(t, path, dir, safetensors.BF16)
	script(t, interpreter, "auto_tokenizer.py", dir, filepath.Join("..", "..", "..", "LICENSE"), result)
	var got struct {
		Class      string
		Text, Chat []int32
		Special    []string
		End        int32
	}
	if err := json.Unmarshal(read(t, root, "result.json"), &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, ends with %d", got.Class, got.End)
	text := textOf(t, path)
	if want := tokensOf(t, path, string(read(t, "../../..", "LICENSE"))); !slices.Equal(got.Text, want) {
		t.Errorf("got %d tokens, want %d", len(got.Text), len(want))
	}
	want, err := chat.Conversation(t.Context(), text, []chat.Message{{Role: "user", Content: smollm2Text[0].prompt}})
	if err != nil || !slices.Equal(got.Chat, want) {
		t.Errorf("a conversation: got %v, want %v (%v)", got.Chat, want, err)
	}
	if special := []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>"}; !slices.Equal(got.Special, special) ||
		!slices.Contains(text.Stop, got.End) {
		t.Errorf("got the special tokens %q, which end with %d", got.Special, got.End)
	}
}
