package serve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/microscale-go/microscale/generation"
)

type modelList struct {
	Object string        `json:"object"`
	Data   []modelObject `json:"data"`
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// envelope is an answer or a part of one.
type envelope struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// An endpoint is the form of requests and answers.
type endpoint interface {
	prefix() string // of ids
	prompts(ctx context.Context, q *request, t *generation.Text) ([]prompt, error)
	minTokens() int                                   // minimum of max_tokens
	set(q *request, r *generation.Request) error      // sets what differs between endpoints
	object(part bool) string                          //
	whole(t *generation.Text, q *request, o one) any  // the choice of an answer
	first() any                                       // the choice before the parts of an answer, or nil
	part(p generation.Part, f *generation.Finish) any // the choice of a part of an answer
}

// one is the answer to one prompt of a request.
type one struct {
	index  int
	prompt prompt
	generation.Part
	*generation.Answer
}

type chatEndpoint struct{}

type chatChoice struct {
	Index    int                `json:"index"`
	Message  *chatMessage       `json:"message,omitempty"`
	Delta    *chatMessage       `json:"delta,omitempty"`
	Logprobs *chatLogprobs      `json:"logprobs,omitempty"`
	Finish   *generation.Finish `json:"finish_reason"`
}

type chatMessage struct {
	Role      string  `json:"role,omitempty"`
	Reasoning *string `json:"reasoning_content,omitempty"` // as DeepSeek's API names it
	Content   *string `json:"content,omitempty"`
}

func (chatEndpoint) prefix() string { return "chatcmpl-" }

func (chatEndpoint) prompts(ctx context.Context, q *request, t *generation.Text) ([]prompt, error) {
	return q.conversation(ctx, t)
}

func (chatEndpoint) minTokens() int { return 1 }

func (chatEndpoint) set(q *request, r *generation.Request) error {
	top := 0
	override(&top, q.TopLogprobs)
	r.Message = true
	r.Logprob = q.Logprobs != nil && q.Logprobs.wanted
	switch {
	case q.Echo:
		return badRequest("echo", "echo is not supported for chat: leave it out")
	case q.Logprobs != nil && q.Logprobs.top != 0:
		return badRequest("logprobs", "logprobs: want a bool for chat")
	case top != 0 && !r.Logprob:
		return badRequest("top_logprobs", "top_logprobs needs logprobs: set it to true")
	}
	return setLogprobs(q, r, "top_logprobs", top)
}

// setLogprobs sets the number of most likely tokens, which the parameter name gave.
func setLogprobs(q *request, r *generation.Request, name string, top int) error {
	if top < 0 || top > maxTopLogprobs {
		return badRequest(name, "%s is %d, want 0 to %d", name, top, maxTopLogprobs)
	}
	if r.Logprob && q.Stream {
		return badRequest("logprobs", "logprobs is not supported for streams: leave it out")
	}
	r.Logprobs = top
	return nil
}

func (chatEndpoint) object(part bool) string {
	if part {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (chatEndpoint) whole(t *generation.Text, q *request, o one) any {
	c := chatChoice{Index: o.index, Message: &chatMessage{Role: "assistant", Reasoning: some(o.Reasoning), Content: &o.Text},
		Finish: &o.Finish}
	if q.Logprobs != nil && q.Logprobs.wanted {
		c.Logprobs = chatLogprobsOf(t, o.Logprobs)
	}
	return c
}

func (chatEndpoint) first() any {
	empty := ""
	return chatChoice{Delta: &chatMessage{Role: "assistant", Content: &empty}}
}

func (chatEndpoint) part(p generation.Part, f *generation.Finish) any {
	return chatChoice{Delta: &chatMessage{Reasoning: some(p.Reasoning), Content: some(p.Text)}, Finish: f}
}

// some returns a text, or nil if it is empty.
func some(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

type textEndpoint struct{}

type textChoice struct {
	Index    int                `json:"index"`
	Text     string             `json:"text"`
	Logprobs *textLogprobs      `json:"logprobs"`
	Finish   *generation.Finish `json:"finish_reason"`
}

func (textEndpoint) prefix() string { return "cmpl-" }

func (textEndpoint) prompts(ctx context.Context, q *request, t *generation.Text) ([]prompt, error) {
	return q.completion(ctx, t)
}

func (textEndpoint) minTokens() int { return 0 }

func (textEndpoint) set(q *request, r *generation.Request) error {
	top := 0
	if q.Logprobs != nil {
		r.Logprob, top = q.Logprobs.wanted, q.Logprobs.top
	}
	switch {
	case q.Echo && q.Stream:
		return badRequest("echo", "echo is not supported for streams: leave it out")
	case q.TopLogprobs != nil:
		return badRequest("top_logprobs", "top_logprobs is not supported for completions: give logprobs a number")
	}
	r.ScorePrompt = q.Echo && r.Logprob
	return setLogprobs(q, r, "logprobs", top)
}

func (textEndpoint) object(bool) string { return "text_completion" }

func (textEndpoint) whole(t *generation.Text, q *request, o one) any {
	c := textChoice{Index: o.index, Text: o.Text, Finish: &o.Finish}
	if q.Echo {
		c.Text = o.prompt.text + c.Text
	}
	if q.Logprobs != nil && q.Logprobs.wanted {
		c.Logprobs = textLogprobsOf(t, o.prompt, o.PromptLogprobs, o.Logprobs)
	}
	return c
}

func (textEndpoint) first() any { return nil }

func (textEndpoint) part(p generation.Part, f *generation.Finish) any {
	return textChoice{Text: p.Text, Finish: f}
}

// random returns random bits for ids and seeds.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// complete answers a request.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, e endpoint) {
	b := &requestBody{Reader: http.MaxBytesReader(w, r.Body, maxBody), budget: &s.bodies}
	defer b.close()
	if err := s.respond(w, r, e, b); err != nil {
		writeError(w, asAPI(err))
	}
}

// respond answers a request, or returns an error before the answer begins. Only running requests, as many as there are
// contexts, render templates and encode texts.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, e endpoint, b *requestBody) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return &apiError{status: http.StatusUnsupportedMediaType,
			Message: fmt.Sprintf("Content-Encoding %.40q is not supported: send the request without it", encoding)}
	}
	if r.ContentLength > maxBody {
		return tooLarge(maxBody)
	}
	data, err := readBody(w, b, s.config.times.read)
	if err != nil {
		return err
	}
	q, err := parseRequest(data)
	if err != nil {
		return err
	}
	if q.Model != "" {
		if err := s.checkModel(q.Model); err != nil {
			return err
		}
	}
	g, err := q.generation(s.config, e, random())
	if err != nil {
		return err
	}
	if err := s.pool.enter(); err != nil {
		return err
	}
	defer s.pool.leave()
	if err := s.pool.begin(r.Context()); err != nil {
		return err
	}
	defer s.pool.end()
	prompts, err := e.prompts(r.Context(), &q, &s.model.Text)
	s.unknown.add(q.unknown)
	if err != nil {
		return err
	}
	for _, p := range prompts {
		if n := len(p.tokens); n > s.config.Positions {
			return &generation.PromptTooLong{Tokens: n, Positions: s.config.Positions}
		}
	}
	if err := checkEntries(prompts, g); err != nil {
		return err
	}
	c := s.pool.take(prompts[0].tokens)
	defer s.pool.put(c)
	form := envelope{ID: e.prefix() + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, random())), Object: e.object(q.Stream),
		Created: time.Now().Unix(), Model: s.model.Name}
	if !q.Stream {
		return s.answer(w, r, e, &q, form, prompts, func(i int) (*generation.Answer, error) { return s.beginAnswer(c, g, prompts[i]) })
	}
	a, err := s.beginAnswer(c, g, prompts[0])
	if err != nil {
		return err
	}
	defer s.batch.leave(a)
	s.stream(w, r, e, form, a, q.StreamOptions.IncludeUsage)
	return nil
}

// beginAnswer begins the answer to a prompt.
func (s *Server) beginAnswer(c *generation.Context, g generation.Request, p prompt) (*generation.Answer, error) {
	g.Prompt = p.tokens
	return s.model.Begin(c, g)
}

// begin waits for a turn, which end ends.
func (s *Server) begin(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) end() { <-s.turn }

// answer writes the whole answers to prompts, one after the other. begin begins the answer to a prompt.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, e endpoint, q *request, form envelope, prompts []prompt,
	begin func(i int) (*generation.Answer, error)) error {
	form.Usage = &usage{}
	for i, p := range prompts {
		a, err := begin(i)
		if err != nil {
			return err
		}
		all, err := s.whole(r.Context(), a)
		if err != nil {
			return err
		}
		form.Choices = append(form.Choices, e.whole(&s.model.Text, q, one{i, p, all, a}))
		form.Usage.add(a)
	}
	writeJSON(w, form)
	return nil
}

// whole computes an answer to its end, and returns it as one part.
func (s *Server) whole(ctx context.Context, a *generation.Answer) (generation.Part, error) {
	defer s.batch.leave(a)
	var reasoning, text strings.Builder
	for a.Finish == "" {
		part, err := s.step(ctx, a)
		if err != nil {
			return generation.Part{}, err
		}
		reasoning.WriteString(part.Reasoning)
		text.WriteString(part.Text)
	}
	return generation.Part{Reasoning: reasoning.String(), Text: text.String()}, nil
}

// add adds the tokens of an answer.
func (u *usage) add(a *generation.Answer) {
	u.PromptTokens += a.PromptTokens
	u.CompletionTokens += a.Tokens
	u.TotalTokens += a.PromptTokens + a.Tokens
}

// stream writes the parts of an answer as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, e endpoint, form envelope, a *generation.Answer, withUsage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	events := eventWriter{w: w, control: http.NewResponseController(w)}
	send := func(choices ...any) {
		form.Choices = append([]any{}, choices...) // an empty list, not null
		events.send(form)
	}
	if first := e.first(); first != nil {
		send(first)
	}
	for a.Finish == "" && events.err == nil {
		p, err := s.step(r.Context(), a)
		if err != nil {
			events.send(map[string]*apiError{"error": asAPI(err).typed()})
			return
		}
		if p != (generation.Part{}) {
			send(e.part(p, nil))
		}
	}
	send(e.part(generation.Part{}, &a.Finish))
	if withUsage {
		form.Usage = &usage{}
		form.Usage.add(a)
		send()
	}
	events.write("[DONE]")
}

// An eventWriter writes server-sent events. After the first error it writes nothing.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (e *eventWriter) send(document any) {
	data, err := json.Marshal(document)
	if err != nil {
		e.err = errors.Join(e.err, err)
		return
	}
	e.write(string(data))
}

func (e *eventWriter) write(data string) {
	if e.err != nil {
		return
	}
	_, e.err = e.w.Write([]byte("data: " + data + "\n\n"))
	if e.err == nil {
		e.err = e.control.Flush()
	}
}
