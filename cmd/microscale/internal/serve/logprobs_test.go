package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/tokenizer"
)

// A scored is an answer with log probabilities.
type scored struct {
	Choices []struct {
		Index    int
		Text     string
		Logprobs *struct {
			Tokens        []string
			TokenLogprobs []*float64           `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			TextOffset    []int                `json:"text_offset"`
			Content       []struct {
				Token   string
				Logprob float64
				Bytes   []int
				Top     []struct {
					Token   string
					Logprob float64
				} `json:"top_logprobs"`
			}
		}
	}
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
}

func (s *testServer) score(t *testing.T, path, parameters string) (a scored) {
	t.Helper()
	status, text := s.post(t, path, "{"+parameters+"}")
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != 200 {
		t.Fatalf("%s: %d %s (%v)", parameters, status, text, err)
	}
	return a
}

// TestPrompts compares the four forms of prompts, alone and in a list.
func TestPrompts(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	const rest = `, "max_tokens": 5, "temperature": 0`
	want := s.score(t, "/v1/completions", `"prompt": "Hi"`+rest).Choices[0].Text
	for _, form := range []string{`"Hi"`, `["Hi"]`, `[72, 105]`, `[[72, 105]]`, `["Ho", "Hi"]`, `[[72, 111], [72, 105], [1]]`} {
		for _, echo := range []string{"", "Hi"} {
			a := s.score(t, "/v1/completions", fmt.Sprintf(`"prompt": %s, "echo": %t%s`, form, echo != "", rest))
			n := len(a.Choices)
			at := min(1, n-1)
			if c := a.Choices[at]; c.Text != echo+want || c.Index != at || c.Logprobs != nil || a.Usage.CompletionTokens != 5*n {
				t.Errorf("%s, echo %q: got %+v, want %q", form, echo, a, want)
			}
		}
	}
}

// TestEcho scores a prompt as lm_eval does: the sums of probabilities of next tokens are at most 1, each token has the
// probability that a shorter prompt gives it, and the most likely token is the one that is generated.
func TestEcho(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	prompt := strings.Repeat("Hello é", 90) // more than one pass
	quoted, _ := json.Marshal(prompt)
	a := s.score(t, "/v1/completions", fmt.Sprintf(`"prompt": %s, "echo": true, "logprobs": 20, "max_tokens": 1, "temperature": 0`, quoted))
	c, n := a.Choices[0], len(prompt)
	l := c.Logprobs
	if len(l.Tokens) != n+1 || len(l.TokenLogprobs) != n+1 || len(l.TopLogprobs) != n+1 || len(l.TextOffset) != n+1 ||
		a.Usage.PromptTokens != n || a.Usage.CompletionTokens != 1 {
		t.Fatalf("%d tokens: got %d, %d, %d, %d, usage %+v", n, len(l.Tokens), len(l.TokenLogprobs), len(l.TopLogprobs), len(l.TextOffset),
			a.Usage)
	}
	if l.TokenLogprobs[0] != nil || l.TopLogprobs[0] != nil || l.Tokens[0] != "H" || l.TextOffset[1] != 1 || !strings.HasPrefix(c.Text,
		prompt) {
		t.Errorf("the first token: %v, %v, %q", l.TokenLogprobs[0], l.TopLogprobs[0], l.Tokens[0])
	}
	for _, at := range []int{1, 3, 300, 511, 512, 513, 600, n - 1, n} {
		if at < n && prompt[at-1] >= 0x80 || at < n && prompt[at] >= 0x80 {
			continue // not a text
		}
		short, _ := json.Marshal(prompt[:at])
		one := s.score(t, "/v1/completions", fmt.Sprintf(`"prompt": %s, "logprobs": 20, "max_tokens": 1, "temperature": 0`,
			short)).Choices[0].Logprobs
		for token, want := range one.TopLogprobs[0] {
			if got, ok := l.TopLogprobs[at][token]; ok && math.Abs(got-want) > 1e-4 {
				t.Errorf("token %d: log probability of %q is %g, want %g", at, token, got, want)
			}
		}
		highest, sum := math.Inf(-1), 0.0
		for _, v := range l.TopLogprobs[at] {
			highest, sum = max(highest, v), sum+math.Exp(v)
		}
		if sum <= 0 || sum > 1+1e-6 {
			t.Errorf("token %d: the probabilities of %d tokens have the sum %g", at, len(l.TopLogprobs[at]), sum)
		}
		if *one.TokenLogprobs[0] != one.TopLogprobs[0][one.Tokens[0]] || math.Abs(*one.TokenLogprobs[0]-highest) > 1e-4 ||
			*l.TokenLogprobs[at] > highest {
			t.Errorf("token %d: the most likely one has %g, want %g", at, *one.TokenLogprobs[0], highest)
		}
	}
	b := s.score(t, "/v1/completions", `"prompt": [[72, 105], [72]], "echo": true, "logprobs": 1, "max_tokens": 0`)
	if b.Choices[0].Text != "Hi" || len(b.Choices[0].Logprobs.Tokens) != 2 || len(b.Choices[1].Logprobs.Tokens) != 1 ||
		b.Usage.CompletionTokens != 0 {
		t.Errorf("without tokens: %+v", b)
	}
	if again := s.score(t, "/v1/completions", fmt.Sprintf(`"prompt": %s, "max_tokens": 1, "temperature": 0`, quoted)); prompt+
		again.Choices[0].Text != c.Text {
		t.Errorf("the next request: %q, want the end of %q", again.Choices[0].Text, c.Text)
	}
}

// TestEntries rejects prompts whose log probabilities would need too much memory.
func TestEntries(t *testing.T) {
	p := make([]prompt, maxPrompts)
	for i := range p {
		p[i].tokens = make([]int32, 4096)
	}
	if err := checkEntries(p, generation.Request{ScorePrompt: true, Logprobs: 1}); err != nil {
		t.Error(err)
	}
	if err := checkEntries(p, generation.Request{Logprobs: 20}); err != nil {
		t.Errorf("without the scores of prompts: %v", err)
	}
	const ids = maxEntries/4000/21 + 1
	s := start(t, Config{Parallel: 1})
	list := strings.Repeat(`"`+strings.Repeat("x", 4000)+`",`, ids-1) + `"` + strings.Repeat("x", 4000) + `"`
	status, text := s.post(t, "/v1/completions", `{"prompt": [`+list+`], "echo": true, "logprobs": 20, "max_tokens": 0}`)
	if status != 400 || !strings.Contains(text, "want at most 1048576") {
		t.Errorf("got %d %.200s", status, text)
	}
}

// TestWordSpace checks the tokens and offsets of a vocabulary in which the same word stands with and without a space.
func TestWordSpace(t *testing.T) {
	metadata := map[string]any{
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{"<unk>", "<s>", "</s>", "▁", "a", "▁a"},
		"tokenizer.ggml.token_type": []int32{2, 3, 3, 1, 1, 1},
	}
	p, err := tokenizer.FromGGUF(func(key string) any { return metadata[key] })
	if err != nil {
		t.Fatal(err)
	}
	top := []generation.TokenLogprob{{Token: 5, Value: -1}, {Token: 4, Value: -2}}
	l := textLogprobsOf(&generation.Text{Tokenizer: p}, prompt{}, []generation.Logprob{{Token: 5, Value: math.NaN()},
		{Token: 4, Value: -2, Top: top}, {Token: 5, Value: -1, Top: top}}, nil)
	if got := fmt.Sprintf("%q %v", l.Tokens, l.Offsets); got != `[" a" "a" " a"] [0 1 2]` {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(l.Top[1]); got != "map[ a:-1 a:-2]" {
		t.Errorf("got %s", got)
	}

	// The token before a text, and special tokens of the answer, are no text.
	scored := []generation.Logprob{{Token: 1, Value: math.NaN()}, {Token: 5}, {Token: 4}}
	answer := []generation.Logprob{{Token: 5}, {Token: 1}, {Token: 4}, {Token: 2}}
	text := generation.Text{Tokenizer: p}
	for _, c := range []struct {
		asked prompt
		want  string // for "aa a</s>"
	}{
		{prompt{[]int32{1, 5, 4}, "aa"}, "[0 0 1 2 4 4 5]"},
		{prompt{[]int32{1, 5, 4}, "<s> aa"}, "[0 3 5 6 8 8 9]"}, // token ids, or a text that has it
	} {
		if got := fmt.Sprint(textLogprobsOf(&text, c.asked, scored, answer).Offsets); got != c.want {
			t.Errorf("%q: got %s, want %s", c.asked.text, got, c.want)
		}
		if got := fmt.Sprint(textLogprobsOf(&text, c.asked, nil, answer).Offsets); got != "[0 2 2 3]" {
			t.Errorf("%q without echo: got %s", c.asked.text, got)
		}
	}
	one := textLogprobsOf(&text, prompt{[]int32{5}, " a"}, []generation.Logprob{{Token: 5, Value: math.NaN()}}, answer[:1])
	if got := fmt.Sprint(one.Offsets); got != "[0 2]" {
		t.Errorf("after a prompt of one token: got %s", got)
	}
}

// TestChatLogprobs checks the log probabilities of an answer to a conversation.
func TestChatLogprobs(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	a := s.score(t, "/v1/chat/completions", `"messages": [{"role": "user", "content": "Hi"}], "logprobs": true, "top_logprobs": 3, `+
		`"max_tokens": 4, "temperature": 0`)
	l := a.Choices[0].Logprobs.Content
	if len(l) != 4 {
		t.Fatalf("got %+v", a)
	}
	for _, c := range l {
		if len(c.Top) != 3 || c.Top[0].Logprob != c.Logprob || c.Top[0].Token != c.Token || c.Top[1].Logprob > c.Logprob ||
			len(c.Bytes) != len(c.Token) || c.Logprob > 0 {
			t.Errorf("got %+v", c)
		}
	}
}

// TestMessages passes fields of messages to the template, and reports those that it does not read.
func TestMessages(t *testing.T) {
	var unknown []string
	s := start(t, Config{Parallel: 1, Unknown: func(field string) { unknown = append(unknown, field) }})
	s.model.Text.Template = "{% for m in messages %}{{ m.name }}{{ m.reasoning_content }}{{ m.content }}{% endfor %}"
	for message, want := range map[string]int{
		`"content": "12345"`:                5,
		`"content": "12345", "name": "ada"`: 8,
		`"reasoning_content": "think", "content": "12345", "name": "ada", "tool_calls": [], ` +
			`"refusal": null`: 13,
		`"content": [{"type": "text", "text": "12"}, {"type": "text", "text": "45", "cache_control": {"type": "ephemeral"}, "x": 1}], ` +
			`"moon": 1`: 5,
	} {
		a := s.score(t, "/v1/chat/completions", `"messages": [{"role": "user", `+message+`}], "max_tokens": 1, "stream_options": {"y": 1, `+
			`"include_obfuscation": false}`)
		if a.Usage.PromptTokens != want {
			t.Errorf("%s: %d tokens, want %d", message, a.Usage.PromptTokens, want)
		}
	}
	if got := fmt.Sprint(unknown); len(unknown) != 3 || !strings.Contains(got, "stream_options.y") ||
		!strings.Contains(got, "messages.moon") || !strings.Contains(got, "messages.content.x") {
		t.Errorf("reported %v", unknown)
	}
}
