package generation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation/sampling"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
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
	m, err := New("random", d, Text{Tokenizer: tokenizer.Bytes(), Template: "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% " +
		"endfor %}a:"})
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
	if err := a.Write(t.Context(), func(p Part) error { text.WriteString(p.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	return text.String(), a
}

// TestNoSuchToken rejects prompts with tokens that the model does not have, also where a pass would end before them.
func TestNoSuchToken(t *testing.T) {
	m := newModel(t)
	c := newContext(t, m, 0)
	for _, id := range []int32{-1, 256} {
		prompt := make([]int32, decoder.PromptChunk+1)
		prompt[decoder.PromptChunk] = id
		_, err := m.Begin(c, Request{Prompt: prompt, ScorePrompt: true, PromptOnly: true})
		if want := (*NoSuchToken)(nil); !errors.As(err, &want) || !strings.Contains(err.Error(),
			fmt.Sprintf("token 512 of the prompt is %d, but the model has tokens 0 to 255: ", id)) {
			t.Errorf("%d: got %v", id, err)
		}
	}
}

// TestProbabilities checks that the probabilities of all tokens have the sum 1.
func TestProbabilities(t *testing.T) {
	m := newModel(t)
	_, a := write(t, m, newContext(t, m, 0), Request{Prompt: []int32("Hello"), Logprobs: 256, ScorePrompt: true, PromptOnly: true})
	if len(a.PromptLogprobs) != len("Hello") {
		t.Fatalf("got %d log probabilities", len(a.PromptLogprobs))
	}
	for i, p := range a.PromptLogprobs[1:] {
		sum := 0.0
		for _, top := range p.Top {
			sum += math.Exp(top.Value)
		}
		if len(p.Top) != 256 || !(math.Abs(sum-1) <= 1e-12) {
			t.Errorf("token %d: the probabilities of %d tokens have the sum %g", i+1, len(p.Top), sum)
		}
	}
}

// hot draws nearly evenly, so that answers have all kinds of bytes.
var hot = sampling.Options{Temperature: 10, TopP: 1, Seed: 4}

// TestAnswer checks that an answer does not depend on what the context held before, on chunks of the
// prompt, or on threads, and that it ends with the tokens asked for or the context.
func TestAnswer(t *testing.T) {
	m := newModel(t)
	prompt := m.Text.Completion(strings.Repeat("To be, or not to be. ", 50))
	c := newContext(t, m, 1200)
	r := Request{Prompt: prompt, MaxTokens: 60, Sampling: hot}
	want, a := write(t, m, c, r)
	if a.Finish != Length || a.Full || a.Tokens != 60 || a.PromptTokens != len(prompt) || a.Cached != 0 {
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
	if _, a = write(t, m, newContext(t, m, 1100), r); a.Finish != Length || !a.Full || a.Tokens != 1100-len(prompt)+1 {
		t.Errorf("full context: %s after %d tokens", a.Finish, a.Tokens)
	}
	if read, written := a.Rates(); read.Tokens != len(prompt) || written.Tokens != a.Tokens-1 ||
		!(read.PerSecond() > 0 && written.PerSecond() > 0) {
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
	err = a.Write(ctx, func(Part) error {
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
	if err := a.Write(t.Context(), func(Part) error { return broken }); err != broken {
		t.Errorf("failed write: got %v", err)
	}
	if _, err := m.NewContext(1201, 1); err == nil {
		t.Error("more positions than the model has: got no error")
	}
	if _, err := m.NewContext(1200, 1<<40); err == nil || !strings.Contains(err.Error(), "smaller context") {
		t.Errorf("contexts larger than memory: got %v", err)
	}
	if _, err := New("x", m.decoder, Text{Tokenizer: special(t)}); err != nil {
		t.Errorf("a tokenizer with a special token beyond the vocabulary: %v", err)
	}
	if _, err := New("x", m.decoder, Text{Tokenizer: wide(t)}); err == nil {
		t.Error("tokenizer with more tokens than the model: got no error")
	}
}

// special is a tokenizer with one more token than the model has, such as Gemma 3's of images.
func special(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	s, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "vocab": {"a": 255}, "merges": []}, "decoder": {"type": "ByteLevel"},
		"added_tokens": [{"id": 256, "content": "<image_soft_token>", "special": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wide(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	w, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "vocab": {"a": 300}, "merges": []}, "decoder": {"type": "ByteLevel"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestText checks the tokens of empty completions.
func TestText(t *testing.T) {
	text := newModel(t).Text
	if got := text.Completion(""); !slices.Equal(got, []int32{'\n'}) {
		t.Errorf("empty text: %v", got)
	}
	text.BOS = "B"
	if got := text.Completion(""); !slices.Equal(got, []int32{'B'}) {
		t.Errorf("empty text with BOS: %v", got)
	}
}

// newText returns the text of a model whose tokens are letters. Texts begin with <s>, and <|im_end|> is special or not.
func newText(t *testing.T, special string) Text {
	t.Helper()
	tok, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2, "<|im_end|>": 3}, "merges": []},
		"pre_tokenizer": {"type": "ByteLevel", "use_regex": false}, "decoder": {"type": "ByteLevel"},
		"added_tokens": [{"id": 2, "content": "<s>", "special": true}, {"id": 3, "content": "<|im_end|>", "special": ` + special + `}],
		"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}],
		"special_tokens": {"<s>": {"ids": [2]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return Text{Tokenizer: tok, Template: "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", BOS: "<s>"}
}

// TestBegin checks that conversations and completions begin with one BOS: the template writes that of a conversation.
func TestBegin(t *testing.T) {
	text := newText(t, "true")
	if got, want := text.Encode("<s>ab"), []int32{2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("conversation: got %v, want %v", got, want)
	}
	if got, want := text.Completion("ab"), []int32{2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("completion: got %v, want %v", got, want)
	}
	if got, want := text.Completion(""), []int32{2}; !slices.Equal(got, want) {
		t.Errorf("empty completion: got %v, want %v", got, want)
	}
}

// TestStopTokens checks that a token that ends messages is guessed to end answers if it is special, and each token once.
func TestStopTokens(t *testing.T) {
	for special, want := range map[string][]int32{"true": {1, 2, 3}, "false": {1, 2}} {
		text := newText(t, special)
		text.addStops(2, 1, 1)
		if text.guessStops(); !slices.Equal(text.Stop, want) {
			t.Errorf("special %s: got %v, want %v", special, text.Stop, want)
		}
	}
}

// TestRecommended checks which options of sampling the files of a model replace.
func TestRecommended(t *testing.T) {
	yes, no, cold, few, all := true, false, 0.6, 20, -1
	flags := sampling.Options{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, Seed: 7}
	with := func(change func(o *sampling.Options)) sampling.Options {
		o := flags
		change(&o)
		return o
	}
	for i, c := range []struct {
		file  Sampling
		given string
		want  sampling.Options
	}{
		{Sampling{}, "", flags},
		{Sampling{DoSample: &no, Temperature: &cold}, "", with(func(o *sampling.Options) { o.Temperature = 0 })},
		{Sampling{DoSample: &no}, "temperature", flags},
		{Sampling{DoSample: &yes}, "", with(func(o *sampling.Options) { o.Temperature = 1 })},
		{Sampling{DoSample: &yes, Temperature: &cold, TopK: &few, TopP: &cold, RepeatPenalty: &cold}, "",
			sampling.Options{Temperature: 0.6, TopK: 20, TopP: 0.6, MinP: 0.05, RepeatPenalty: 0.6, Seed: 7}},
		{Sampling{Temperature: &cold, TopK: &all, MinP: &cold}, "min-p", with(func(o *sampling.Options) { o.Temperature, o.TopK = 0.6, 0 })},
	} {
		m := Model{Text: Text{Sampling: c.file, Notes: []string{"N."}}}
		got, lines := m.Recommended(flags, func(name string) bool { return name == c.given })
		if got != c.want || len(lines) != 1 && c.file == (Sampling{}) || len(lines) != 2 && c.file != (Sampling{}) {
			t.Errorf("%d: got %+v, %q, want %+v", i, got, lines, c.want)
		}
	}
}

// TestFewTokens checks that logits without a token are never drawn.
func TestFewTokens(t *testing.T) {
	text := newText(t, "true")
	m, err := New("few", newModel(t).decoder, text)
	if err != nil {
		t.Fatal(err)
	}
	c := newContext(t, m, 100)
	write(t, m, c, Request{Prompt: []int32{0}, MaxTokens: 60, Sampling: hot})
	if last := slices.Max(c.tokens); len(c.tokens) != 60 || last > 3 {
		t.Errorf("%d tokens up to %d, want 60 up to 3", len(c.tokens), last)
	}
}

// TestPenalty checks that the repeat penalty applies to the answer as well as to the prompt.
func TestPenalty(t *testing.T) {
	m := newModel(t)
	c := newContext(t, m, 100)
	write(t, m, c, Request{Prompt: []int32{'a', 'b', 'c'}, MaxTokens: 40, Sampling: sampling.Options{RepeatPenalty: 1000}})
	tokens := slices.Sorted(slices.Values(c.tokens))
	if different := len(slices.Compact(tokens)); different != len(c.tokens) || different != 42 {
		t.Errorf("%d of %d tokens are different, want all of 42: %v", different, len(c.tokens), c.tokens)
	}
}

// TestStepEach checks that answers that take their steps together have the text of each alone, and that the
// contexts hold their tokens.
func TestStepEach(t *testing.T) {
	m := newModel(t)
	var answers []*Answer
	var texts, want [3]string
	var alone [3]*Context
	for i := range texts {
		r := Request{Prompt: []int32{int32('a' + i)}, MaxTokens: 20, Sampling: sampling.Options{RepeatPenalty: 2}}
		alone[i] = newContext(t, m, 100)
		want[i], _ = write(t, m, alone[i], r)
		a, err := m.Begin(newContext(t, m, 100), r)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	for answers[0].Finish == "" {
		for i, step := range m.StepEach(t.Context(), answers) {
			if step.Err != nil {
				t.Fatal(step.Err)
			}
			texts[i] += step.Text
		}
	}
	for i, a := range answers {
		if texts[i] != want[i] || !slices.Equal(a.context.tokens, alone[i].tokens) || a.Tokens != 20 || a.Finish != Length {
			t.Errorf("answer %d: got %q, %v, want %q, %v", i, texts[i], a.context.tokens, want[i], alone[i].tokens)
		}
	}
}

// TestScoreAgain checks that a pass that was canceled is computed again with the same log probabilities, and that passes
// that score a prompt are not shared.
func TestScoreAgain(t *testing.T) {
	m := newModel(t)
	r := Request{Prompt: m.Text.Completion(strings.Repeat("x", decoder.PromptChunk) + "abc"), ScorePrompt: true, PromptOnly: true}
	_, want := write(t, m, newContext(t, m, 0), r)
	a, err := m.Begin(newContext(t, m, 0), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx := &cancelLate{Context: t.Context()}
		if _, err := a.Step(ctx); !errors.Is(err, context.Canceled) || len(a.PromptLogprobs) != decoder.PromptChunk+1 {
			t.Fatalf("canceled: got %v with %d log probabilities, want %d", err, len(a.PromptLogprobs), decoder.PromptChunk+1)
		}
	}
	if _, err := a.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.PromptLogprobs) != fmt.Sprint(want.PromptLogprobs) {
		t.Errorf("got %d log probabilities, want %d", len(a.PromptLogprobs), len(want.PromptLogprobs))
	}
	for score, single := range map[bool]bool{true: false, false: true} {
		a, err := m.Begin(newContext(t, m, 0), Request{Prompt: []int32{'x'}, ScorePrompt: score})
		if err != nil || a.Single() != single {
			t.Errorf("score %t: got %t, %v", score, a.Single(), err)
		}
	}
	if a, err := m.Begin(newContext(t, m, 0), Request{Prompt: []int32("xy")}); err != nil || a.Single() {
		t.Errorf("two tokens: got %t, %v", a.Single(), err)
	}
}

// A cancelLate is canceled from the second time that it is asked on.
type cancelLate struct {
	context.Context
	asked int
}

func (c *cancelLate) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

// TestLoad loads a model of bytes, which has no files of a tokenizer.
func TestLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	if err := newModel(t).decoder.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	m, err := Load(t.Context(), "m", source, Options{})
	if err != nil || m.Name != "m" || m.Text.Tokenizer.Size() != 256 || len(m.Text.Stop) > 0 {
		t.Fatalf("got %+v, %v", m, err)
	}
	for given, want := range map[int]int{0: 1200, 1: 1, 5000: 5000} {
		if got := m.Positions(given); got != want {
			t.Errorf("%d positions: got %d, want %d", given, got, want)
		}
	}
}

// TestRate checks a rate of one token, and of none.
func TestRate(t *testing.T) {
	for r, want := range map[Rate]float64{{1, time.Second}: 1, {0, time.Second}: 0, {1, 0}: 0, {3, time.Second / 2}: 6} {
		if got := r.PerSecond(); got != want {
			t.Errorf("%v: got %g, want %g", r, got, want)
		}
	}
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
