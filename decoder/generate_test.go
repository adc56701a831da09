package decoder

import (
	"bytes"
	"context"
	"testing"
)

func generate(t testing.TB, m *Model, name, prompt string, o GenerateOptions) string {
	t.Helper()
	var out bytes.Buffer
	for b, err := range m.Generate(context.Background(), *scope(t, name), []byte(prompt), o) {
		if err != nil {
			t.Fatal(err)
		}
		out.WriteByte(b)
	}
	return out.String()
}

// TestGenerate checks that greedy text with the KV cache is that of the logits of the whole text.
func TestGenerate(t *testing.T) {
	m := trained(t, small)
	prompt := "the quick "
	got := generate(t, m, "f32", prompt, GenerateOptions{MaxTokens: 20})
	text := prompt
	for range 20 {
		tokens := make([]int32, len(text))
		for i := range text {
			tokens[i] = int32(text[i])
		}
		logits, err := m.Infer(scope(t, "f32"), tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		row, best := logits.Row(logits.Rows-1), 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		text += string([]byte{byte(best)})
	}
	if prompt+got != text {
		t.Errorf("%q with the cache, %q without", prompt+got, text)
	}
}

// TestGenerateOptions checks the seed, top-k, and that text ends with the positions and with the
// context.
func TestGenerateOptions(t *testing.T) {
	c := small
	c.MaxPositionEmbeddings = 48
	m := trained(t, c)
	hot := GenerateOptions{MaxTokens: 30, Temperature: 2, Seed: 1}
	one := generate(t, m, "mxfp8", "the", hot)
	if again := generate(t, m, "mxfp8", "the", hot); again != one || len(one) != 30 {
		t.Errorf("%q and %q of one seed", one, again)
	}
	hot.Seed = 2
	if other := generate(t, m, "mxfp8", "the", hot); other == one {
		t.Errorf("%q of two seeds", other)
	}
	hot.TopK = 1
	greedy := generate(t, m, "mxfp8", "the", GenerateOptions{MaxTokens: 30})
	if got := generate(t, m, "mxfp8", "the", hot); got != greedy {
		t.Errorf("the likeliest one is drawn as %q, and taken as %q", got, greedy)
	}
	if got := generate(t, m, "bf16", "", GenerateOptions{}); len(got) != 48 {
		t.Errorf("%d bytes of 48 positions", len(got))
	}
	if got := generate(t, m, "bf16", "the", GenerateOptions{}); len(got) != 46 {
		t.Errorf("%d bytes after a prompt of 3 of 48 positions", len(got))
	}
	for name, o := range map[string]GenerateOptions{"temperature": {Temperature: -1}, "top": {TopK: -1}, "tokens": {MaxTokens: -1}} {
		for _, err := range m.Generate(context.Background(), *scope(t, "bf16"), []byte("x"), o) {
			if err == nil {
				t.Errorf("%s: got no error", name)
			}
		}
	}
	for _, err := range m.Generate(context.Background(), *scope(t, "bf16"), make([]byte, 49), GenerateOptions{}) {
		if err == nil {
			t.Error("prompt longer than the positions: got no error")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	for _, err := range m.Generate(ctx, *scope(t, "bf16"), []byte("x"), GenerateOptions{}) {
		if n++; n == 3 {
			cancel()
		}
		if (err != nil) != (n == 4) || n > 4 {
			t.Fatalf("byte %d: %v", n, err)
		}
	}
}
