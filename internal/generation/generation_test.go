package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/chat"
	"github.com/microscale-go/microscale/internal/sampling"
	"github.com/microscale-go/microscale/tokenizer"
)

// newModel returns a model of bytes with random weights.
func newModel(t *testing.T) *Model {
	t.Helper()
	d, err := decoder.New(decoder.Config{
		HiddenSize: 32, IntermediateSize: 32, NumHiddenLayers: 2, NumAttentionHeads: 2, MaxPositionEmbeddings: 1200,
	}, decoder.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New("random", d, Text{Tokenizer: tokenizer.Bytes(), Template: "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newContext(t *testing.T, m *Model, positions int) *Context {
	t.Helper()
	c, err := m.NewContext(positions, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write returns the text of an answer.
func write(t *testing.T, m *Model, c *Context, r Request) (string, *Answer) {
	t.Helper()
	a, err := m.Begin(c, r)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := a.Write(t.Context(), func(part string) error { text.WriteString(part); return nil }); err != nil {
		t.Fatal(err)
	}
	return text.String(), a
}

// hot draws nearly evenly, so that answers have all kinds of bytes.
var hot = sampling.Options{Temperature: 10, Seed: 4}

// TestAnswer checks that an answer does not depend on what the context held before, on chunks of the
// prompt, or on threads, and that it ends with the tokens asked for or the context.
func TestAnswer(t *testing.T) {
	m := newModel(t)
	prompt := m.Text.Completion(strings.Repeat("To be, or not to be. ", 50))
	c := newContext(t, m, 1200)
	r := Request{Prompt: prompt, MaxTokens: 60, Sampling: hot}
	want, a := write(t, m, c, r)
	if a.Finish != Length || a.Tokens != 60 || a.PromptTokens != len(prompt) || a.Cached != 0 {
		t.Errorf("first answer: %+v", a)
	}
	again, a := write(t, m, c, r)
	if again != want || a.Cached != len(prompt)-1 {
		t.Errorf("%d tokens from the cache: got %q, want %q", a.Cached, again, want)
	}
	other, _ := write(t, m, c, Request{Prompt: m.Text.Completion("To beg"), MaxTokens: 5})
	again, a = write(t, m, c, r)
	if again != want || a.Cached != len("To be") {
		t.Errorf("after %q, %d tokens from the cache: got %q, want %q", other, a.Cached, again, want)
	}
	m.decoder.Inference.Threads = 1
	if again, _ = write(t, m, newContext(t, m, 1200), r); again != want {
		t.Errorf("with one thread: got %q, want %q", again, want)
	}
	r.MaxTokens = 0
	if _, a = write(t, m, newContext(t, m, 1100), r); a.Finish != Length || a.Tokens != 1100-len(prompt)+1 {
		t.Errorf("full context: %s after %d tokens", a.Finish, a.Tokens)
	}
	if read, written := a.Rates(); read.Tokens != len(prompt) || written.Tokens != a.Tokens-1 || !(read.PerSecond() > 0 && written.PerSecond() > 0) {
		t.Errorf("rates %v and %v", read, written)
	}
}

// TestStops checks stop tokens and stop strings at every place of a text.
func TestStops(t *testing.T) {
	m := newModel(t)
	c := newContext(t, m, 200)
	r := Request{Prompt: m.Text.Completion("x"), MaxTokens: 40, Sampling: hot}
	whole, _ := write(t, m, c, r)
	runes := []rune(whole)
	for i := range runes {
		for _, n := range []int{1, 2, 5} {
			stop := string(runes[i:min(i+n, len(runes))])
			r.Stop = []string{"no such text", stop}
			want, _, _ := strings.Cut(whole, stop)
			if got, a := write(t, m, c, r); got != want || a.Finish != Stopped {
				t.Errorf("stop %q: got %q (%s), want %q", stop, got, a.Finish, want)
			}
		}
	}
	r.Stop = []string{whole + "!", "no"}
	if got, a := write(t, m, c, r); got != whole || a.Finish != Length {
		t.Errorf("held back to the end: got %q (%s), want %q", got, a.Finish, whole)
	}
	r.Stop = nil
	s, err := sampling.New(hot)
	if err != nil {
		t.Fatal(err)
	}
	logits, err := newContext(t, m, 200).append(t.Context(), r.Prompt)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Next(logits, r.Prompt)
	if err != nil {
		t.Fatal(err)
	}
	m.Text.Stop = []int32{first}
	if got, a := write(t, m, c, r); got != "" || a.Finish != Stopped || a.Tokens != 0 {
		t.Errorf("stop token first: got %q after %d tokens (%s)", got, a.Tokens, a.Finish)
	}
}

func TestErrors(t *testing.T) {
	m := newModel(t)
	c := newContext(t, m, 10)
	for name, r := range map[string]Request{
		"empty":   {},
		"long":    {Prompt: make([]int32, 11)},
		"tokens":  {Prompt: []int32{1}, MaxTokens: -1},
		"stop":    {Prompt: []int32{1}, Stop: []string{""}},
		"options": {Prompt: []int32{1}, Sampling: sampling.Options{TopP: 2}},
	} {
		if _, err := m.Begin(c, r); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	var long *PromptTooLong
	if _, err := m.Begin(c, Request{Prompt: make([]int32, 11)}); !errors.As(err, &long) {
		t.Errorf("long prompt: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := Request{Prompt: m.Text.Completion("abc"), MaxTokens: 6, Sampling: hot}
	want, _ := write(t, m, c, r)
	a, err := m.Begin(c, r)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = a.Write(ctx, func(string) error {
		if n++; n == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 2 {
		t.Errorf("canceled: %v after %d parts", err, n)
	}
	if got, _ := write(t, m, c, r); got != want {
		t.Errorf("after an error: got %q, want %q", got, want)
	}
	broken := errors.New("broken pipe")
	a, _ = m.Begin(c, r)
	if err := a.Write(t.Context(), func(string) error { return broken }); err != broken {
		t.Errorf("failed write: got %v", err)
	}
	if _, err := m.NewContext(1201, 1); err == nil {
		t.Error("more positions than the model has: got no error")
	}
	if _, err := m.NewContext(1200, 1<<40); err == nil || !strings.Contains(err.Error(), "smaller context") {
		t.Errorf("contexts larger than memory: got %v", err)
	}
	if _, err := New("x", m.decoder, Text{Tokenizer: wide(t)}); err == nil {
		t.Error("tokenizer with more tokens than the model: got no error")
	}
}

func wide(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	w, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "vocab": {"a": 300}, "merges": []}, "decoder": {"type": "ByteLevel"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestText checks the tokens of conversations and of empty completions.
func TestText(t *testing.T) {
	text := newModel(t).Text
	got, err := text.Conversation(t.Context(), []chat.Message{{Role: "user", Content: "Hi"}})
	if err != nil || string(bytesOf(got)) != "u:Hi\na:" {
		t.Errorf("conversation: %q, %v", bytesOf(got), err)
	}
	if got := text.Completion(""); !slices.Equal(got, []int32{'\n'}) {
		t.Errorf("empty text: %v", got)
	}
	text.BOS = "B"
	if got := text.Completion(""); !slices.Equal(got, []int32{'B'}) {
		t.Errorf("empty text with BOS: %v", got)
	}
	text.Template = "{# nothing #}"
	if _, err := text.Conversation(t.Context(), nil); err == nil {
		t.Error("template without text: got no error")
	}
	text.Template = ""
	if _, err := text.Conversation(t.Context(), nil); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("no template: got %v", err)
	}
}

func bytesOf(tokens []int32) (b []byte) {
	for _, id := range tokens {
		b = append(b, byte(id))
	}
	return b
}

// TestStopper compares with strings.Cut for texts in random parts.
func TestStopper(t *testing.T) {
	stops := []string{"aab", "aba", "bbbb"}
	for n := range 1 << 10 {
		text := strings.NewReplacer("0", "a", "1", "b").Replace(fmt.Sprintf("%010b", n))
		for size := 1; size <= 4; size++ {
			s := stopper{stops: stops}
			var got string
			stopped := false
			for i := 0; i < len(text) && !stopped; i += size {
				var part string
				part, stopped = s.next(text[i:min(i+size, len(text))])
				got += part
			}
			got += s.end()
			want := text
			for _, stop := range stops {
				if before, _, ok := strings.Cut(text, stop); ok && len(before) < len(want) {
					want = before
				}
			}
			if got != want || stopped != (want != text) {
				t.Errorf("%s in parts of %d: got %q (%t), want %q", text, size, got, stopped, want)
			}
		}
	}
}
