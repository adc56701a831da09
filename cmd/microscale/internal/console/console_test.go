package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
	"github.com/microscale-go/microscale/tokenizer"
)

const template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"

// newConsole returns a console of a model of bytes with random weights, and what it writes.
func newConsole(t *testing.T, template string) (c *Console, out, log *bytes.Buffer) {
	t.Helper()
	d, err := decoder.New(decoder.Config{
		HiddenSize: 32, IntermediateSize: 32, NumHiddenLayers: 1, NumAttentionHeads: 2, MaxPositionEmbeddings: 128,
	}, decoder.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := generation.New("random", d, generation.Text{Tokenizer: tokenizer.Bytes(), Template: template})
	if err != nil {
		t.Fatal(err)
	}
	out, log = new(bytes.Buffer), new(bytes.Buffer)
	return &Console{Model: m, MaxTokens: 8, Sampling: sampling.Options{Temperature: 0.02, TopP: 1, Seed: 2}, Out: out, Log: log}, out, log
}

// TestOnce checks that the text of an answer is alone on standard output, the same as in JSON, and
// that the template is applied unless a completion is asked for.
func TestOnce(t *testing.T) {
	texts := map[string]bool{}
	for name, change := range map[string]func(*Console){
		"chat":       func(*Console) {},
		"system":     func(c *Console) { c.System = "Be brief." },
		"completion": func(c *Console) { c.Complete = true },
	} {
		c, out, log := newConsole(t, template)
		change(c)
		if err := c.Once(t.Context(), "Hi"); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); !strings.HasPrefix(got, "prompt: ") || !strings.Contains(got, "answer: 8 tokens, ") ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("%s: the log is %q", name, got)
		}
		text := strings.TrimSuffix(out.String(), "\n")
		texts[text] = true
		out.Reset()
		log.Reset()
		if err := c.Describe(t.Context(), "Hi"); err != nil {
			t.Fatal(err)
		}
		var d Document
		if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Text != text || d.Tokens != 8 || d.FinishReason != generation.Length ||
			d.Context != 128 || log.Len() > 0 {
			t.Errorf("%s: got %+v (%v), want the text %q; log %s", name, d, err, text, log)
		}
		want := map[string]int{"chat": len("u:Hi\na:"), "system": len("s:Be brief.\nu:Hi\na:"), "completion": len("Hi")}[name]
		if d.PromptTokens != want {
			t.Errorf("%s: %d tokens of the prompt, want %d", name, d.PromptTokens, want)
		}
	}
	if len(texts) != 3 {
		t.Errorf("got %d texts of three prompts: %v", len(texts), texts)
	}
}

// TestReasoning checks that reasoning is apart from the answer: between lines on the log, and a member of the document.
func TestReasoning(t *testing.T) {
	c, out, log := newConsole(t, "{{ messages[0].content.split('</think>')[-1] }}<think>") // the random model does not end it
	if err := c.Once(t.Context(), "Hi"); err != nil {
		t.Fatal(err)
	}
	reasoning, ok := strings.CutPrefix(log.String(), "Reasoning:\n")
	reasoning, rates, found := strings.Cut(reasoning, "\nAnswer:\n")
	if out.String() != "" || !ok || !found || reasoning == "" || !strings.HasPrefix(rates, "prompt: ") {
		t.Errorf("got the text %q, the log %q", out, log)
	}
	out.Reset()
	if err := c.Describe(t.Context(), "Hi"); err != nil {
		t.Fatal(err)
	}
	var d Document
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Text != "" || d.Reasoning != reasoning {
		t.Errorf("got %+v, %v, want the reasoning %q", d, err, reasoning)
	}
	c.Complete = true
	out.Reset()
	if err := c.Once(t.Context(), "Hi<think>"); err != nil || out.String() == "" {
		t.Errorf("a completion has all as text: got %q, %v", out, err)
	}
	var terminal strings.Builder
	w := reasoningWriter{text: show.TextWriter{W: &terminal, Escape: true}}
	w.write("")
	w.end()
	for _, part := range []string{"a", "\x1b", "b"} {
		w.write(part)
	}
	w.end()
	w.end()
	if got := terminal.String(); got != "\x1b[2ma\\x1bb\n\x1b[22m" {
		t.Errorf("at a terminal: got %q", got)
	}
}

// TestOnceFull checks that an answer that the context cuts off says so, and that a single token has no
// rate.
func TestOnceFull(t *testing.T) {
	for _, tc := range []struct {
		tokens int // maximum
		want   string
		full   bool
	}{{0, "answer: 13 tokens, ", true}, {12, "answer: 12 tokens, ", false}, {1, "answer: 1 token\n", false}} {
		c, _, log := newConsole(t, "")
		c.Positions, c.MaxTokens = 16, tc.tokens
		if err := c.Once(t.Context(), "Four"); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); !strings.Contains(got, tc.want) || strings.Contains(got, "because the context of 16 tokens is full") != tc.full {
			t.Errorf("at most %d tokens: %q", tc.tokens, got)
		}
	}
}

// A closedPipe fails from the second write on.
type closedPipe struct{ writes int }

func (p *closedPipe) Write(b []byte) (int, error) {
	if p.writes++; p.writes > 1 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

func TestOnceErrors(t *testing.T) {
	c, _, _ := newConsole(t, template)
	c.Out = new(closedPipe)
	if err := c.Once(t.Context(), "Hi"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("closed output: got %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	c, _, _ = newConsole(t, template)
	if err := c.Once(canceled, "Hi"); err == nil || err.Error() != "interrupted: after 0 tokens" {
		t.Errorf("canceled: got %v", err)
	}
	for want, change := range map[string]func(*Console){
		"128 positions":    func(c *Console) { c.MaxTokens = 0; c.System = strings.Repeat("x", 200) },
		"want 1 to 128":    func(c *Console) { c.Positions = 129 },
		"no chat template": func(c *Console) { c.Model.Text.Template, c.System = "", "x" },
		"no system":        func(c *Console) { c.Complete, c.System = true, "x" },
		"chat template: ":  func(c *Console) { c.Model.Text.Template = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}" },
	} {
		c, out, _ := newConsole(t, template)
		change(c)
		if err := c.Once(t.Context(), "Hi"); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("got %v and %q, want an error with %q", err, out, want)
		}
	}
}

// TestChat checks that a conversation grows by questions and answers, and its commands.
func TestChat(t *testing.T) {
	c, out, log := newConsole(t, template)
	c.Positions = 64
	in := strings.NewReader("Hi\n\nAgain\n/what\n" + strings.Repeat("x", 70) + "\n/clear\nHi\n/bye\nnever\n")
	if err := c.Chat(t.Context(), in, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/bye ends", "/what is not a command", "but the context has 64 positions: enter /clear",
		"answer: 24 tokens"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	one, again, _ := newConsole(t, template)
	if err := one.Once(t.Context(), "Hi"); err != nil {
		t.Fatal(err)
	}
	first := again.String()
	got := out.String()
	if !strings.HasPrefix(got, first) || !strings.HasSuffix(got, first) || len(got) <= 2*len(first) {
		t.Errorf("got %q, want %q, an answer to the conversation, and %[2]q again", got, first)
	}
	c, out, log = newConsole(t, "")
	if err := c.Chat(t.Context(), strings.NewReader("Hi"), nil); err != nil || !strings.Contains(log.String(), "continues each line as text") {
		t.Errorf("no template: %v; %s", err, log)
	}
	c.Complete = true
	text := out.String()
	out.Reset()
	if err := c.Once(t.Context(), "Hi"); err != nil || out.String() != text {
		t.Errorf("a line without a template gives %q, the completion %q (%v)", text, out, err)
	}
}

// TestConversation checks the messages of the second question: the first one, its answer, and the question. The
// template reports them as an error.
func TestConversation(t *testing.T) {
	c, _, log := newConsole(t, "{% if messages | length > 1 %}{{ raise_exception(messages | length ~ ': ' ~ messages[0].content ~ '|' ~ "+
		"messages[1].role ~ '|' ~ messages[2].content) }}{% endif %}a:")
	if err := c.Chat(t.Context(), strings.NewReader("Hi\nAgain\n"), nil); err != nil {
		t.Fatal(err)
	}
	if want := "3: Hi|assistant|Again"; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %q: %s", want, log)
	}
}

// An interrupter sends interrupts at given numbers of writes.
type interrupter struct {
	text   bytes.Buffer
	at     []int
	writes int
	to     chan os.Signal
}

func (i *interrupter) Write(p []byte) (int, error) {
	for _, at := range i.at {
		if i.writes == at {
			i.to <- os.Interrupt
			time.Sleep(time.Second / 10) // until it arrived
		}
	}
	i.writes++
	return i.text.Write(p)
}

// TestInterrupts checks that an interrupt stops an answer, and that two at the prompt end the
// program.
func TestInterrupts(t *testing.T) {
	c, _, log := newConsole(t, template)
	c.MaxTokens = 0
	answers := &interrupter{at: []int{2}, to: make(chan os.Signal)}
	c.Out = answers
	if err := c.Chat(t.Context(), strings.NewReader("Hi\n/bye\n"), answers.to); err != nil {
		t.Fatal(err)
	}
	if n := c.total.answer.Tokens; n == 0 || n > 60 || !strings.Contains(log.String(), "answer: ") {
		t.Errorf("%d tokens after an interrupt: %s", n, log)
	}
	in, _ := io.Pipe() // a user who enters nothing
	c, _, _ = newConsole(t, template)
	prompts := &interrupter{to: make(chan os.Signal, 2)}
	c.Log = prompts
	prompts.to <- os.Interrupt
	prompts.to <- os.Interrupt
	if err := c.Chat(t.Context(), in, prompts.to); err != nil {
		t.Fatal(err)
	}
	if got := prompts.text.String(); strings.Count(got, "Press Ctrl-C again") != 1 || strings.Count(got, ">>> ") != 2 {
		t.Errorf("two interrupts: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, _, _ = newConsole(t, template)
	if err := c.Chat(ctx, in, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
}

func TestReadPrompt(t *testing.T) {
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"no", []string{"Hi\n"}, "Hi\n"}, {"a\nb\n", nil, "a\nb"}, {"a\r\n", []string{"-"}, "a"}, {"\n", nil, ""}, {"", []string{""}, ""},
	} {
		if got, err := ReadPrompt(strings.NewReader(c.stdin), c.args); got != c.want || err != nil {
			t.Errorf("%q %q: got %q, %v", c.stdin, c.args, got, err)
		}
	}
	if _, err := ReadPrompt(strings.NewReader(""), nil); err == nil || !strings.Contains(err.Error(), "standard input is empty") {
		t.Errorf("empty input: got %v", err)
	}
	if _, err := ReadPrompt(zeros{}, nil); err == nil || !strings.Contains(err.Error(), "want at most 64.0 MiB") {
		t.Errorf("endless input: got %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
