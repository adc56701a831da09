package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
	"github.com/microscale-go/microscale/tokenizer"
)

// A testServer is a server of a random model of bytes on a port of its own.
type testServer struct {
	*Server
	url  string
	stop func() error // ends the server and returns the error of Serve
}

const template = "{% for m in messages %}{% if m.role == 'nobody' %}{{ raise_exception('no such role') }}{% endif %}{{ m.role[0] }}:{{ " +
	"m.content }}\n{% endfor %}a:"

func start(t *testing.T, c Config) *testServer {
	t.Helper()
	d, err := decoder.New(decoder.Config{
		HiddenSize: 32, IntermediateSize: 32, NumHiddenLayers: 1, NumAttentionHeads: 2, MaxPositionEmbeddings: 4096,
	}, decoder.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := generation.New("tiny/model", d, generation.Text{Tokenizer: tokenizer.Bytes(), Template: template})
	if err != nil {
		t.Fatal(err)
	}
	c.Sampling = sampling.Options{Temperature: 0.02, TopP: 1}
	s, err := New(m, c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = smallBuffers{l}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	stop := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			return fmt.Errorf("the server did not stop")
		}
	})
	t.Cleanup(func() { _ = stop() }) // again if the test called it
	return &testServer{s, "http://" + l.Addr().String(), stop}
}

// smallBuffers is a listener whose connections hold little that clients do not read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetWriteBuffer(4096)
}

// body returns the body of an answer.
func body(t *testing.T, r *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		t.Error(err)
	}
	return string(data)
}

// post returns the status and the body of an answer.
func (s *testServer) post(t *testing.T, path, request string) (status int, text string) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	data := body(t, r)
	if r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	return r.StatusCode, data
}

type message struct {
	Role, Content string
	Reasoning     string `json:"reasoning_content"`
}

// A document is a body of either endpoint.
type document struct {
	ID, Object, Model string
	Choices           []struct {
		Text         string
		Message      message
		Delta        message
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
}

func parse(t *testing.T, text string) (d document) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// TestAnswers checks both endpoints, whole and streamed: the same text, and the form of OpenAI's API.
func TestAnswers(t *testing.T) {
	s := start(t, Config{Parallel: 2, Queue: 4})
	const chat = `"messages": [{"role": "system", "content": [{"type": "text", "text": "S"}]}, {"role": "user", "content": "Hi"}], ` +
		`"max_tokens": 12, "seed": 5`
	const text = `"prompt": "Hi", "max_completion_tokens": 12, "seed": 5`
	for _, c := range []struct{ path, parameters, id, object, part string }{
		{"/v1/chat/completions", chat, "chatcmpl-", "chat.completion", "chat.completion.chunk"},
		{"/v1/completions", text, "cmpl-", "text_completion", "text_completion"},
	} {
		status, body := s.post(t, c.path, "{"+c.parameters+"}")
		whole := parse(t, body)
		if status != http.StatusOK || len(whole.Choices) != 1 || !strings.HasPrefix(whole.ID, c.id) || whole.Object != c.object ||
			whole.Model != "tiny/model" {
			t.Fatalf("%s: %d %s", c.path, status, body)
		}
		choice, u := whole.Choices[0], whole.Usage
		want := choice.Message.Content + choice.Text
		if *choice.FinishReason != "length" || want == "" || u.CompletionTokens != 12 || u.PromptTokens == 0 || u.TotalTokens != u.PromptTokens+
			12 {
			t.Errorf("%s: %s", c.path, body)
		}
		status, body = s.post(t, c.path, "{"+c.parameters+`, "stream": true, "stream_options": {"include_usage": true}}`)
		events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
		if status != http.StatusOK || events[len(events)-1] != "data: [DONE]" {
			t.Fatalf("%s: %d %s", c.path, status, body)
		}
		var got strings.Builder
		finish, tokens := "", 0
		for i, e := range events[:len(events)-1] {
			d := parse(t, strings.TrimPrefix(e, "data: "))
			if d.Object != c.part || !strings.HasPrefix(d.ID, c.id) {
				t.Errorf("%s: event %s", c.path, e)
			}
			if d.Usage != nil {
				tokens = d.Usage.CompletionTokens
				if len(d.Choices) != 0 || !strings.Contains(e, `"choices":[]`) {
					t.Errorf("%s: usage in %s", c.path, e)
				}
				continue
			}
			if role := d.Choices[0].Delta.Role; (role == "assistant") != (i == 0 && c.id == "chatcmpl-") {
				t.Errorf("%s: role in event %d, %s", c.path, i, e)
			}
			got.WriteString(d.Choices[0].Delta.Content + d.Choices[0].Text)
			if f := d.Choices[0].FinishReason; f != nil {
				finish = *f
			}
		}
		if got.String() != want || finish != "length" || tokens != 12 || len(events) < 8 {
			t.Errorf("%s: streamed %q (%s), want %q", c.path, got.String(), finish, want)
		}
		first := strings.ToValidUTF8(want[:2], "")
		if first == "" {
			first = string([]rune(want)[:1])
		}
		stop, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if _, body = s.post(t, c.path, "{"+c.parameters+`, "stop": `+string(stop)+"}"); *parse(t, body).Choices[0].FinishReason != "stop" {
			t.Errorf("%s: stop %s: %s", c.path, stop, body)
		}
	}
}

// TestReasoning checks that the reasoning of a message stands beside its content, whole and streamed. The template begins
// it, and the random model does not end it.
func TestReasoning(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	const chat, text, parameters = "/v1/chat/completions", "/v1/completions", `"max_tokens": 12, "seed": 5`
	const messages = `{"messages": [{"role": "user", "content": "Hi"}], ` + parameters
	_, plain := s.post(t, chat, messages+"}")
	if strings.Contains(plain, "reasoning") || parse(t, plain).Choices[0].Message.Content == "" {
		t.Errorf("without reasoning: %s", plain)
	}
	s.model.Text.Template = "{{ messages[0].content.split('</think>')[-1] }}<think>"
	_, body := s.post(t, chat, messages+"}")
	want := parse(t, body).Choices[0].Message
	if want.Reasoning == "" || want.Content != "" || !strings.Contains(body, `"content":""`) {
		t.Fatalf("got %s", body)
	}
	_, body = s.post(t, chat, messages+`, "stream": true}`)
	var got message
	for _, e := range strings.Split(strings.TrimSuffix(body, "\n\ndata: [DONE]\n\n"), "\n\n") {
		d := parse(t, strings.TrimPrefix(e, "data: ")).Choices[0].Delta
		got = message{got.Role + d.Role, got.Content + d.Content, got.Reasoning + d.Reasoning}
	}
	if got != want {
		t.Errorf("streamed %+v, want %+v", got, want)
	}
	if _, body = s.post(t, text, `{"prompt": "Hi<think>", `+parameters+"}"); strings.TrimSpace(parse(t,
		body).Choices[0].Text) != want.Reasoning {
		t.Errorf("a completion has all as text: got %s, want %q", body, want.Reasoning)
	}
}

// TestLimits checks that the lower of the limits of server and request ends an answer, and that a seed gives the
// same text again. top_p 0 keeps the most likely token alone.
func TestLimits(t *testing.T) {
	s := start(t, Config{Parallel: 1, Queue: 1, MaxTokens: 5})
	for request, want := range map[string]int{`"max_tokens": 9`: 5, `"max_tokens": 2`: 2, `"seed": 1`: 5,
		`"max_tokens": 9, "max_completion_tokens": 3`: 3} {
		if _, body := s.post(t, "/v1/completions", `{"prompt": "x", `+request+"}"); parse(t, body).Usage.CompletionTokens != want {
			t.Errorf("%s: want %d tokens, got %s", request, want, body)
		}
	}
	texts := map[string]bool{}
	for _, seed := range []string{"7", "8", "9", "7", "8", "9"} {
		_, body := s.post(t, "/v1/completions", `{"prompt": "x", "temperature": 100, "seed": `+seed+"}")
		texts[parse(t, body).Choices[0].Text] = true
	}
	if len(texts) != 3 {
		t.Errorf("3 seeds, each twice, give %d texts: %v", len(texts), texts)
	}
	clear(texts)
	for _, sampling := range []string{`"temperature": 0`, `"temperature": 100, "top_p": 0, "seed": 7`,
		`"temperature": 100, "top_p": 0, "seed": 8`} {
		_, body := s.post(t, "/v1/completions", `{"prompt": "x", `+sampling+"}")
		texts[parse(t, body).Choices[0].Text] = true
	}
	if len(texts) != 1 {
		t.Errorf("top_p 0 and temperature 0 give %d texts: %v", len(texts), texts)
	}
	clear(texts)
	for _, all := range []string{``, `"top_k": 0,`, `"top_k": -1,`, `"top_k": -1.0,`} {
		_, body := s.post(t, "/v1/completions", `{"prompt": "x", `+all+`"temperature": 100, "seed": 7}`)
		texts[parse(t, body).Choices[0].Text] = true
	}
	if len(texts) != 1 {
		t.Errorf("all tokens: %d texts: %v", len(texts), texts)
	}
}

// TestTake checks that a request gets the idle context that holds most of its prompt.
func TestTake(t *testing.T) {
	s := start(t, Config{Parallel: 3, Queue: 1, Positions: 64})
	prompts := [][]int32{{1, 2, 3, 4}, {1, 2, 8, 9}, {5, 6, 7, 8}}
	var contexts []*generation.Context
	for range prompts {
		contexts = append(contexts, s.pool.take(nil))
	}
	for i, c := range contexts {
		a, err := s.model.Begin(c, generation.Request{Prompt: prompts[i], MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.pool.put(c)
	}
	for i, prompt := range [][]int32{{1, 2, 3, 9}, {1, 2, 8}, {5, 6, 1}} {
		got := s.pool.take(prompt)
		if got != contexts[i] {
			t.Errorf("prompt %v: got another context than number %d", prompt, i)
		}
		s.pool.put(got)
	}
}

func TestModels(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	for path, want := range map[string]string{
		"/v1/models":            `"data":[{"id":"tiny/model","object":"model",`,
		"/v1/models/tiny/model": `{"id":"tiny/model","object":"model",`,
		"/v1/models/other":      `there is no model \"other\"`,
		"/v2":                   "there is no GET /v2: this server has",
		"/health":               "ok",
	} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		data := body(t, r)
		if !strings.Contains(data, want) || (r.StatusCode == http.StatusNotFound) != strings.Contains(want, "there is no") {
			t.Errorf("%s: %d %s, want %s", path, r.StatusCode, data, want)
		}
	}
}

// TestMethods checks that requests of paths by other methods are answered with the right one.
func TestMethods(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/v1/chat/completions", "POST"}, {"OPTIONS", "/v1/completions", "POST"}, {"PUT", "/v1/models", "GET"},
		{"DELETE", "/v1/models/tiny/model", "GET"},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"error":{"message":"%s does not take %s: use %s"`, c.path, c.method, c.want)
		if text := body(t, r); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != c.want || !strings.HasPrefix(text, want) {
			t.Errorf("%s %s: %d %q %s", c.method, c.path, r.StatusCode, r.Header.Get("Allow"), text)
		}
	}
}

// TestErrors checks that each bad request is one JSON error with a message.
func TestErrors(t *testing.T) {
	s := start(t, Config{Parallel: 1, Queue: 1, Positions: 64})
	const chat, text = "/v1/chat/completions", "/v1/completions"
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{chat, `{`, "not a JSON object", 400},
		{chat, `[]`, `"message":"the request is not a JSON object, but of type array","type":"invalid_request_error","param":null,"code":null`,
			400},
		{chat, `{}`, "messages is missing", 400},
		{chat, `{"messages": [{"content": "x"}]}`, "message 0 has no role", 400},
		{chat, `{"messages": [{"role": "nobody", "content": "x"}]}`, "no such role", 400},
		{chat, `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`,
			`"message":"message 0: content of type \"image_url\" is not supported: want text","type":"invalid_request_error","param":"messages"`,
			400},
		{chat, `{"messages": [{"role": "user", "content": null}]}`, "message 0: it has no content", 400},
		{chat, `{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]}`, "message 0: tool_calls is not supported",
			400},
		{chat, `{"messages": [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}]}`,
			"message 0: function_call is not supported", 400},
		{chat, `{"messages": [{"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [], "function_call": null}], ` +
			`"max_tokens": 1}`, `"usage"`, 200},
		{text, "{\"prompt\": \"\xff\"}", "is not UTF-8", 400},
		{chat, `{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}`, "tools is not supported", 400},
		{chat, `{"messages": [{"role": "user", "content": "x"}], "n": 2}`, "n is not supported", 400},
		{chat, `{"messages": [], "tools": [{}], "suffix": "x", "n": 2, "best_of": 3}`, "best_of is not supported", 400},
		{text, `{"prompt": "x", "temperature": "hot"}`, "temperature: unexpected string", 400},
		{text, `{"prompt": "x", "temperature": -1}`, "temperature is -1", 400},
		{text, `{"prompt": "x", "top_p": 3}`, `top_p is 3, want 0 to 1","type":"invalid_request_error","param":"top_p"`, 400},
		{text, `{"prompt": "x", "top_k": -2}`, `top_k is -2, want 0 to 2147483647","type":"invalid_request_error","param":"top_k"`, 400},
		{text, `{"prompt": "x", "top_k": -1, "max_tokens": 2.0, "seed": 9007199254740992.0, "stop": null}`, `"completion_tokens":2`, 200},
		{text, `{"prompt": "x", "seed": 9007199254740994.0}`, "seed: unexpected number", 400},
		{text, `{"prompt": [0], "max_tokens": 1}`, `"usage"`, 200},
		{text, `{"prompt": "x", "max_tokens": 2.5}`, "max_tokens: unexpected number 2.5", 400},
		{text, `{"prompt": "x", "max_tokens": 1e300}`, "max_tokens: unexpected number 1e300", 400},
		{text, `{"prompt": "x", "max_tokens": "2.0"}`, "max_tokens: unexpected string", 400},
		{text, `{"prompt": "x", "stop": ["a", ""]}`, "stop has an empty string, which would end every answer: leave it out", 400},
		{text, `{"prompt": "x", "stop": ["a"` + strings.Repeat(`, "a"`, 64) + `]}`, "stop has 65 strings, want at most 64", 400},
		{text, `{"prompt": "x", "stop": ["\u0000"` + strings.Repeat(`, "\u0000"`, 63) + `], "max_tokens": 1}`, `"usage"`, 200},
		{text, `{"prompt": "x", "repeat_penalty": -1}`, `"param":"repeat_penalty"`, 400},
		{text, `{"prompt": "x", "max_tokens": -1}`, "want at least 0", 400},
		{chat, `{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}`, "want at least 1", 400},
		{text, `{"prompt": "x", "stop": ""}`, "stop has an empty string", 400},
		{text, `{"prompt": []}`, "prompt is missing or empty", 400},
		{text, `{"prompt": [[1], []]}`, "prompt 1 has no tokens", 400},
		{text, `{"prompt": [1, 256]}`, "prompt 0 has token 256, want 0 to 255", 400},
		{text, `{"prompt": [-1]}`, "prompt 0 has token -1", 400},
		{text, `{"prompt": [null]}`, "want a string, token ids, or a list of either", 400},
		{text, `{"prompt": [[1], null]}`, "want a string, token ids, or a list of either", 400},
		{text, `{"prompt": [[1], [null]]}`, "want a string, token ids, or a list of either", 400},
		{text, `{"prompt": [[[1]]]}`, "want a string, token ids, or a list of either", 400},
		{text, `{"prompt": [1, "x"]}`, "want a string, token ids, or a list of either", 400},
		{text, `{"prompt": [` + strings.Repeat(`"x",`, maxPrompts) + `"x"]}`, "129 elements", 400},
		{text, `{"prompt": ["x", "y"], "stream": true}`, "stream is not supported for several prompts", 400},
		{text, `{"prompt": "x", "stream": true, "logprobs": 1}`, "logprobs is not supported for streams", 400},
		{text, `{"prompt": "x", "stream": true, "echo": true}`, "echo is not supported for streams", 400},
		{text, `{"prompt": "x", "logprobs": 21}`, "logprobs is 21, want 0 to 20", 400},
		{text, `{"prompt": "x", "logprobs": "x"}`, "want a bool or an integer", 400},
		{text, `{"prompt": "x", "top_logprobs": 1}`, "give logprobs a number", 400},
		{chat, `{"messages": [{"role": "user", "content": "x"}], "top_logprobs": 1}`, "top_logprobs needs logprobs", 400},
		{chat, `{"messages": [{"role": "user", "content": "x"}], "logprobs": 2}`, "want a bool", 400},
		{chat, `{"messages": [{"role": "user", "content": "x"}], "echo": true}`, "echo is not supported for chat", 400},
		{chat, `{"messages": [{"role": "user", "content": "x", "prefix": true}]}`, "message 0: prefix is not supported", 400},
		{chat, `{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`, "part 0 of the content has no text", 400},
		{chat, `{"messages": [{"role": "user", "content": 1}]}`, "want a text or a list of parts", 400},
		{chat, `{"messages": [{"Role": "user", "content": "x"}]}`, "message 0 has no role", 400},
		{text, `{"prompt": "x", "stream": true, "stream_options": {"continuous_usage_stats": true}}`,
			"stream_options: continuous_usage_stats is not supported", 400},
		{text, `{"prompt": "x", "repeat_penalty": 1e-45}`, `repeat_penalty is 1e-45, want `, 400},
		{text, `{"prompt": "` + strings.Repeat("x", 64*2*s.model.Text.LongestToken()+1) + `"}`,
			" bytes, but the tokens of a context have at most ", 400},
		{text, `{"prompt": "` + strings.Repeat("x", 64*2*s.model.Text.LongestToken()) + `"}`, " tokens, but the context has 64 positions", 400},
		{text, `{}`, "prompt is missing", 400},
		{text, `{"prompt": "` + strings.Repeat("x", 65) + `"}`, "context_length_exceeded", 400},
		{text, `{"prompt": "` + strings.Repeat("x", maxBody) + `"}`, "more than 8388608 bytes", 413},
		{text, `{"prompt": "x", "max_tokens": 1, "n": 1, "echo": false, "user": "me", "logit_bias": null}`, `"usage"`, 200},
	} {
		status, body := s.post(t, c.path, c.body)
		if status != c.status || !strings.Contains(body, c.want) || (status != 200) != strings.HasPrefix(body, `{"error":{"message":`) {
			t.Errorf("%s %.80s: %d %s, want %d %s", c.path, c.body, status, body, c.status, c.want)
		}
	}
	s.model.Text.Template = ""
	if status, body := s.post(t, chat, `{"messages": [{"role": "user", "content": "x"}]}`); status != 400 || !strings.Contains(body,
		"no chat template") {
		t.Errorf("no template: %d %s", status, body)
	}
}

// TestLoad sends 200 requests at once: all are answered in full, or rejected with 503. Then the
// server stops.
func TestLoad(t *testing.T) {
	s := start(t, Config{Parallel: 3, Queue: 40})
	var wg sync.WaitGroup
	statuses := make([]int, 200)
	for i := range statuses {
		wg.Go(func() {
			stream := i%2 == 0
			var body string
			statuses[i], body = s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt": "Client %d", "max_tokens": %d, "stream": %t}`, i, 1+i%50,
				stream))
			switch complete := strings.Contains(body, `"finish_reason":"length"`) &&
				(!stream || strings.HasSuffix(body, "data: [DONE]\n\n")); statuses[i] {
			case http.StatusOK:
				if !complete {
					t.Errorf("client %d: %s", i, body)
				}
			case http.StatusServiceUnavailable:
				if !strings.Contains(body, `"code":"busy"`) {
					t.Errorf("client %d: %s", i, body)
				}
			default:
				t.Errorf("client %d: %d %s", i, statuses[i], body)
			}
		})
	}
	wg.Wait()
	counts := map[int]int{}
	for _, status := range statuses {
		counts[status]++
	}
	if counts[200] < 43 {
		t.Errorf("%v: want at least the 43 answers that run or wait", counts)
	}
	t.Log(counts)
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if n := len(s.pool.waiting) + len(s.pool.running); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

// stream begins an answer and returns after its first text.
func (s *testServer) stream(ctx context.Context, t *testing.T, maxTokens int) (rest *bufio.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions",
		strings.NewReader(fmt.Sprintf(`{"prompt": "x", "max_tokens": %d, "stream": true}`, maxTokens)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() }) // the context may have closed it
	rest = bufio.NewReader(answer.Body)
	if _, err := rest.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return rest
}

// TestFair checks that a short request is answered while a long one runs.
func TestFair(t *testing.T) {
	s := start(t, Config{Parallel: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.stream(ctx, t, 4000)
	if status, body := s.post(t, "/v1/completions", `{"prompt": "x", "max_tokens": 5}`); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if len(s.pool.running) != 1 {
		t.Errorf("%d requests run after the short one, want the long one", len(s.pool.running))
	}
}

// TestHangUp checks that the work for a client that hangs up ends, running or waiting.
func TestHangUp(t *testing.T) {
	s := start(t, Config{Parallel: 1, Queue: 1})
	ctx, cancel := context.WithCancel(t.Context())
	s.stream(ctx, t, 4000)
	waiting, hangUp := context.WithTimeout(t.Context(), time.Second/5)
	defer hangUp()
	r, _ := http.NewRequestWithContext(waiting, http.MethodPost, s.url+"/v1/completions", strings.NewReader(`{"prompt": "y"}`))
	if _, err := http.DefaultClient.Do(r); err == nil {
		t.Error("a request that waits was answered")
	}
	cancel()
	for deadline := time.Now().Add(5 * time.Second); len(s.pool.waiting) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests run after their clients hung up", len(s.pool.waiting))
		}
	}
	if status, _ := s.post(t, "/v1/completions", `{"prompt": "x", "max_tokens": 2}`); status != 200 {
		t.Errorf("the next request: %d", status)
	}
}

// TestStop checks that a running answer is finished, one that takes too long is ended with an error,
// and new requests fail.
func TestStop(t *testing.T) {
	for _, c := range []struct {
		tokens int
		grace  time.Duration
		want   string
	}{{60, limits.grace, "data: [DONE]"}, {4000, time.Millisecond, "the server is stopping"}} {
		s := start(t, Config{Parallel: 1, times: times{grace: c.grace}})
		rest := s.stream(t.Context(), t, c.tokens)
		stopped := make(chan error)
		go func() { stopped <- s.stop() }()
		text, err := io.ReadAll(rest)
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%d tokens: got %.200s…, %v; want %s", c.tokens, text, err, c.want)
		}
		if err := <-stopped; err != nil {
			t.Errorf("%d tokens: stop: %v", c.tokens, err)
		}
		if _, err := http.Get(s.url + "/health"); err == nil {
			t.Error("a stopped server answers")
		}
	}
}

// TestRunaway checks that a template that takes all memory is the error of its request, and that the
// server goes on.
func TestRunaway(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	const messages = `{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}`
	for _, template := range []string{"{{ 'x' * 100000000000 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"} {
		s.model.Text.Template = template
		if status, body := s.post(t, "/v1/chat/completions", messages); status != 500 || !strings.Contains(body,
			"chat template: it does not end") {
			t.Errorf("%s: %d %s", template, status, body)
		}
	}
	s.model.Text.Template = "{{ messages[0].content }}"
	if status, body := s.post(t, "/v1/chat/completions", messages); status != 200 {
		t.Errorf("after that: %d %s", status, body)
	}
}
