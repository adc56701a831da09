package interop

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/serve"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/tokenizer"
)

// TestOpenAI serves a small model of random weights and uses it with the official client of OpenAI's
// API: chat and completion, whole and streamed, errors, and more requests at a time than the server
// takes, which the client repeats after 503.
func TestOpenAI(t *testing.T) {
	interpreter := python(t, "openai==3.54.0")
	url := serveTiny(t)
	out := filepath.Join(t.TempDir(), "out.json")
	script(t, interpreter, "openai_client.py", url, out)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Models           []string
		Retrieved        string
		Chat, Streamed   string
		Finish           string
		Tokens, Parts    int
		StreamedTokens   int `json:"streamed_tokens"`
		Text             string
		TextStreamed     string `json:"text_streamed"`
		Bad, Long, Tools []any
		Model, Several   []any
		ChatModel        []any `json:"chat_model"`
		LogitBias        []any `json:"logit_bias"`
		Format           []any
		Harmless         string
		Many             []string
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Models) != 1 || got.Models[0] != "tiny" || got.Retrieved != "tiny" {
		t.Errorf("models %q, retrieved %q", got.Models, got.Retrieved)
	}
	if got.Chat == "" || got.Streamed != got.Chat || got.Finish != "length" || got.Tokens != 20 || got.StreamedTokens != 20 || got.Parts < 5 {
		t.Errorf("chat %q (%s, %d tokens), streamed %q (%d tokens in %d parts)", got.Chat, got.Finish, got.Tokens, got.Streamed,
			got.StreamedTokens, got.Parts)
	}
	if got.Harmless != got.Chat {
		t.Errorf("with fields that change nothing: got %q, want %q", got.Harmless, got.Chat)
	}
	if got.Text == "" || got.TextStreamed != got.Text || got.Text == got.Chat {
		t.Errorf("text %q, streamed %q", got.Text, got.TextStreamed)
	}
	for name, c := range map[string]struct {
		error []any
		want  []any
	}{
		"no messages": {got.Bad, []any{"BadRequestError", 400.0, "messages is missing"}},
		"long prompt": {got.Long, []any{"BadRequestError", 400.0, "the prompt has 1000 tokens"}},
		"tools":       {got.Tools, []any{"BadRequestError", 400.0, "tools is not supported"}},
		"other model": {got.Model, []any{"NotFoundError", 404.0, "there is no model"}},
		"chat model":  {got.ChatModel, []any{"NotFoundError", 404.0, `there is no model "other": this server has "tiny"`}},
		"logit bias":  {got.LogitBias, []any{"BadRequestError", 400.0, "logit_bias is not supported"}},
		"format":      {got.Format, []any{"BadRequestError", 400.0, "response_format is not supported"}},
		"two answers": {got.Several, []any{"BadRequestError", 400.0, "n is not supported"}},
	} {
		if len(c.error) != 3 || c.error[0] != c.want[0] || c.error[1] != c.want[1] || !strings.HasPrefix(c.error[2].(string),
			c.want[2].(string)) {
			t.Errorf("%s: got %v, want %v", name, c.error, c.want)
		}
	}
	for i, text := range got.Many {
		if text != got.Text {
			t.Errorf("answer %d of %d: got %q, want %q", i, len(got.Many), text, got.Text)
		}
	}
	if len(got.Many) != 40 {
		t.Errorf("%d answers of 40 requests at a time", len(got.Many))
	}
}

// serveTiny serves a small model until the test ends, and returns its URL.
func serveTiny(t *testing.T) string {
	t.Helper()
	d, err := decoder.New(decoder.Config{
		HiddenSize: 64, IntermediateSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 2, MaxPositionEmbeddings: 256,
	}, decoder.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := generation.New("tiny", d, generation.Text{Tokenizer: tokenizer.Bytes(),
		Template: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"})
	if err != nil {
		t.Fatal(err)
	}
	return serveModel(t, m)
}

// serveModel serves a model until the test ends, and returns its URL.
func serveModel(t *testing.T, m *generation.Model) string {
	t.Helper()
	s, err := serve.New(m, serve.Config{Parallel: 2, Queue: 8})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}
